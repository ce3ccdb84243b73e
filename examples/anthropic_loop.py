"""A loop on the Anthropic SDK that remembers: python examples/anthropic_loop.py "What time is it, in tea time?" """

import sys
from datetime import datetime

from anthropic import Anthropic

from habitus import Habitus

MY_TOOLS = [{"name": "clock", "description": "The time of day.", "input_schema": {"type": "object"}}]
question = " ".join(sys.argv[1:])
with Anthropic() as client, Habitus.open() as habitus, habitus.turn(question, tools=["clock"]) as turn:
    asked = {"model": "claude-sonnet-5-5", "max_tokens": 4096, "system": turn.system}
    messages, content = [], f"{turn.context}\n\n{question}"
    while content:
        messages.append({"role": "user", "content": content})
        answer = client.messages.create(**asked, messages=messages, tools=MY_TOOLS + turn.tools("anthropic"))
        messages.append({"role": "assistant", "content": answer.content})
        content = []
        for call in [block for block in answer.content if block.type == "tool_use"]:
            result = turn.run(call.name, call.input).content if turn.has(call.name) else f"{datetime.now():%H:%M}"
            nudge = "" if turn.has(call.name) else turn.observe(call.name, call.input, result)
            content.append({"type": "tool_result", "tool_use_id": call.id, "content": f"{result}\n{nudge}"})
    turn.done(answer.content[-1].text)
print(answer.content[-1].text)
