"""A loop on the OpenAI SDK that remembers: python examples/openai_loop.py "What time is it, in tea time?" """

import sys
from datetime import datetime

from openai import OpenAI

from habitus import Habitus

MY_TOOLS = [{"type": "function", "function": {"name": "clock", "description": "The time of day."}}]
question = " ".join(sys.argv[1:])
with OpenAI() as client, Habitus.open() as habitus, habitus.turn(question, tools=["clock"]) as turn:
    request = {"role": "user", "content": f"{turn.context}\n\n{question}"}
    messages = [{"role": "system", "content": turn.system}, request]
    while messages[-1]["role"] != "assistant":
        asked = {"model": "gpt-5", "messages": messages, "tools": MY_TOOLS + turn.tools("openai")}
        answer = client.chat.completions.create(**asked).choices[0].message
        messages.append(answer.to_dict())
        for id, call in [(one.id, one.function) for one in answer.tool_calls or ()]:
            result = turn.run(call.name, call.arguments).content if turn.has(call.name) else f"{datetime.now():%H:%M}"
            nudge = "" if turn.has(call.name) else turn.observe(call.name, call.arguments, result)
            messages.append({"role": "tool", "tool_call_id": id, "content": f"{result}\n{nudge}"})
    turn.done(answer.content)
print(answer.content)
