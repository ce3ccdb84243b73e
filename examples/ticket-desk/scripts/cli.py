"""The command line of the ticket desk. It prints one JSON object, whose `status` is "ok" or "error"."""

import argparse
import json
import os
import urllib.error
import urllib.request


def build_parser():
    parser = argparse.ArgumentParser(description="File tickets at the desk, and list those that are there.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the tickets that are there")
    file = commands.add_parser("file", help="file a new one")
    file.add_argument("text", help="what fails, and where")
    return parser


def main():
    arguments = build_parser().parse_args()
    body = arguments.text.encode() if arguments.command == "file" else None
    token = os.environ["DESK_TOKEN"]
    request = urllib.request.Request(os.environ["DESK_URL"], body, {"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            print(json.dumps({"status": "ok", "desk": json.load(answer)}))
    except urllib.error.HTTPError as error:
        print(json.dumps({"status": "error", "error": f"the desk says {error.code}: {error.read().decode().strip()}"}))
    except OSError as error:
        print(json.dumps({"status": "error", "error": str(error)}))


if __name__ == "__main__":
    main()
