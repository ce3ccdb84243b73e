"""An agent of LangGraph that remembers: python examples/langgraph_agent.py "What time is it, in tea time?" """

import sys
from datetime import datetime

from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

from habitus import Habitus
from habitus.integrations.langchain import HabitusMiddleware


def clock() -> str:
    """The time of day."""
    return f"{datetime.now():%H:%M}"


with Habitus.open() as habitus:
    memory = HabitusMiddleware(habitus, user="ana")
    agent = create_agent("openai:gpt-5", [clock], middleware=[memory], checkpointer=InMemorySaver())
    asked = {"messages": [{"role": "user", "content": " ".join(sys.argv[1:])}]}
    print(agent.invoke(asked, {"configurable": {"thread_id": "c1"}})["messages"][-1].text)
