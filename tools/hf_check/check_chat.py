"""Holds chat templates against jinja2 in the sandbox that transformers renders them with.

  check_chat.py goldens FILE                writes FILE, which tests/unit/tokenizer reads
  check_chat.py live MESHWRIGHT FILE ..     compares templates (.jinja) on a few conversations
"""
import argparse
import datetime
import json
import pathlib
import subprocess
import tempfile

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

import small_templates

NOW = datetime.datetime(2026, 11, 26, 12, 0, 0)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The \"weather\" of a place <now> & later",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "a town"},
        "days": {"type": "integer", "enum": [1, 2, 3]},
        "more": {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
        "list": {"type": "array", "items": {"type": "string"}}}}}}]
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {
    "name": "weather", "arguments": {"place": "K\u00f6ln", "days": 2, "x": None, "deep": {"a": [1, 2.5, True]}}}}]}
USER = {"role": "user", "content": "Hi  there\n"}
SYSTEM = {"role": "system", "content": " You are \u00e9 'kind'. "}
ANSWER = {"role": "assistant", "content": "<think>\nwell\n</think>\n\nHello! \U0001f600"}
REQUESTS = [
    {"messages": [USER], "prompt": True},
    {"messages": [USER, ANSWER], "prompt": False},
    {"messages": [SYSTEM, USER, ANSWER, {"role": "user", "content": "More?"}], "prompt": True},
    {"messages": [SYSTEM, USER], "prompt": True, "tools": TOOLS, "variables": {"enable_thinking": False}},
    {"messages": [USER, CALL, {"role": "tool", "name": "weather", "tool_call_id": "abcdefghi", "content": "{\"sun\": 1}"},
                  {"role": "assistant", "content": "It shines."}, USER],
     "prompt": True, "tools": TOOLS, "variables": {"enable_thinking": True}},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "parts"}, {"type": "image"}]}], "prompt": True},
    {"messages": [USER, USER], "prompt": False},
    {"messages": [], "prompt": False},
]


class Generation(Extension):
    """The tag that says what an assistant wrote: nothing but its body, here."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def theirs(template, request):
    try:
        return {"text": environment().from_string(template).render(
            messages=request["messages"], tools=request.get("tools"), documents=None,
            add_generation_prompt=request["prompt"], **TOKENS, **request.get("variables", {}))}
    except Exception as error:  # whatever it is, ours is to refuse, too
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def write_goldens(path):
    cases = []
    for name, template in small_templates.ALL.items():
        for number, request in enumerate(small_templates.REQUESTS.get(name, REQUESTS[:5])):
            cases.append({"name": f"{name}{number}", "template": template, **request, **theirs(template, request)})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases) + "\n]\n")
    return 0


def ours(binary, template, request):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "chat_template.jinja").write_text(template)
        (root / "tokenizer_config.json").write_text(json.dumps(TOKENS))
        (root / "messages.json").write_text(json.dumps(request["messages"]))
        command = [binary, "tokenizer", "render", folder, str(root / "messages.json"), "--now", "2026-11-26T12:00:00"]
        if request["prompt"]:
            command.append("--prompt")
        for key in ("tools", "variables"):
            if key in request:
                (root / key).write_text(json.dumps(request[key]))
                command += [f"--{key}", str(root / key)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return {"error": done.stderr.strip()}
    return {"text": done.stdout[:-1]}


def compare(render, files):
    """render(template, request) is what is held against jinja2."""
    wrong = same = refused = 0
    for file in files:
        template = pathlib.Path(file).read_text()
        for number, request in enumerate(REQUESTS):
            want, got = theirs(template, request), render(template, request)
            good = got["text"] == want["text"] if "text" in got and "text" in want else "error" in got and "error" in want
            same += good
            refused += good and "error" in got
            if good:
                continue
            wrong += 1
            print(f"{pathlib.Path(file).name} request {number}:\n  jinja2 {str(want)[:300]!r}\n  ours   {str(got)[:300]!r}")
    print(f"{len(files)} templates: {same} conversations equal ({refused} of them refused by both), {wrong} different")
    return 0 if wrong == 0 else 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["goldens", "live"])
    parser.add_argument("target")
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()
    if args.action == "goldens":
        return write_goldens(pathlib.Path(args.target))
    return compare(lambda template, request: ours(args.target, template, request), args.files)


if __name__ == "__main__":
    raise SystemExit(main())
