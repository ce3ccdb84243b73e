"""A client that asks Habitus over MCP: python examples/mcp_client.py "summarise a CSV" """

import asyncio
import os
import sys

from mcp.client import Client

from mcp import StdioServerParameters


async def main(wanted: str) -> None:
    server = StdioServerParameters(command="habitus", args=["mcp"], env=dict(os.environ))
    async with Client(server) as client:
        print(", ".join(tool.name for tool in (await client.list_tools()).tools))
        found = await client.call_tool("search_skills", {"query": wanted})
        print(found.content[0].text)
        await client.call_tool("report_outcome", {"ok": True})


asyncio.run(main(" ".join(sys.argv[1:])))
