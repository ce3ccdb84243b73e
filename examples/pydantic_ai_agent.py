"""An agent of pydantic-ai that remembers: python examples/pydantic_ai_agent.py "What time is it, in tea time?" """

import asyncio
import sys
from datetime import datetime

from pydantic_ai import Agent

from habitus import Habitus
from habitus.integrations.pydantic_ai import HabitusCapability

with Habitus.open() as habitus:
    agent = Agent("openai-chat:gpt-5", capabilities=[HabitusCapability(habitus=habitus)])

    @agent.tool_plain
    def clock() -> str:
        """The time of day."""
        return f"{datetime.now():%H:%M}"

    print(asyncio.run(agent.run(" ".join(sys.argv[1:]))).output)
