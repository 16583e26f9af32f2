# SPDX-License-Identifier: Apache-2.0
"""rehearse serve: the protocol, answers that are those of --json, errors that say what was meant, and no end on
anything that comes in. usage: serve_test.py REHEARSE"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from mcp_lines import KEY, Server, check_result  # noqa: E402

rehearse = os.path.abspath(sys.argv[1])
os.chdir(pathlib.Path(__file__).parents[3])
SCENARIO = {"name": "inline", "model": "gpt2-124m", "cluster": "dgx-a100-80gb", "gpus": 8,
            "plan": {"tensor_parallel": 2, "pipeline_parallel": 2, "global_batch": 32, "sequence_length": 1024,
                     "micro_batch": 1}}
TOOLS = ["plan", "simulate", "search", "check", "explain", "list"]


def without_clock(value):
    """A document without what a clock says."""
    if isinstance(value, dict):
        return {k: without_clock(v) for k, v in value.items() if not k.endswith("wall_s")}
    return [without_clock(v) for v in value] if isinstance(value, list) else value


def of_command(*words):
    out = subprocess.run([rehearse, *words, "--json"], capture_output=True, check=False).stdout
    return without_clock(json.loads(out))


def handshake():
    server = Server(rehearse)
    for asked, said in (("2025-11-25", "2025-11-25"), ("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25")):
        result = server.initialize(asked)
        assert result["protocolVersion"] == said and result["capabilities"] == {"tools": {}}
        assert result["serverInfo"]["name"] == "rehearse" and result["instructions"]
    assert server.ask("ping")["result"] == {}
    listed = server.ask("tools/list")["result"]["tools"]
    assert [tool["name"] for tool in listed] == TOOLS
    for tool in listed:
        schema = tool["inputSchema"]
        assert schema["type"] == "object" and schema["additionalProperties"] is False and tool["description"]
        assert set(schema["required"]) <= set(schema["properties"])
        assert all(one.get("description") for one in schema["properties"].values()), tool
        assert not {"json", "svg", "trace", "save", "csv"} & set(schema["properties"]), tool["name"]
    by_name = {tool["name"]: tool["inputSchema"]["properties"] for tool in listed}
    shipped = json.loads(pathlib.Path("scenarios/schema/scenario.json").read_text(encoding="utf-8"))
    assert by_name["simulate"]["scenario"]["anyOf"][1]["properties"] == shipped["properties"]
    assert by_name["list"]["kind"]["enum"] == ["models", "clusters", "scenarios", "schedules", "runtimes"]
    assert by_name["plan"]["gpus"]["minimum"] == 1
    assert server.end() == (0, "")


def stateless():
    server = Server(rehearse)

    def ask(method, version="2026-07-28", capabilities=True, **params):
        meta = {KEY + "protocolVersion": version}
        if capabilities:
            meta[KEY + "clientCapabilities"] = {}
        return server.ask(method, {"_meta": meta, **params})

    found = ask("server/discover")["result"]
    assert "2026-07-28" in found["supportedVersions"] and found["resultType"] == "complete" and found["ttlMs"] > 0
    assert ask("tools/list")["result"]["cacheScope"] == "public"
    answer = ask("tools/call", name="list", arguments={"kind": "schedules"})
    assert answer["result"]["resultType"] == "complete"
    assert answer["result"]["_meta"][KEY + "serverInfo"]["name"] == "rehearse"
    check_result(answer)
    wrong = ask("tools/call", name="simulate", arguments={"scenario": "no-such"})
    assert wrong["result"]["isError"] and wrong["result"]["resultType"] == "complete"
    old = ask("tools/list", version="1900-01-01")["error"]
    assert old["code"] == -32022 and "2026-07-28" in old["data"]["supported"]
    assert ask("tools/list", capabilities=False)["error"]["code"] == -32602
    assert ask("ping")["error"]["code"] == -32601  # it left the protocol
    assert ask("initialize")["error"]["code"] == -32601
    assert server.end() == (0, "")


def answers():
    """Those of --json, whether documents are named or given."""
    server = Server(rehearse)
    server.initialize()

    def same(tool, arguments, *words):
        document, _ = server.call(tool, arguments)
        assert without_clock(document) == of_command(tool, *words), (tool, arguments)
        return document

    simulated = same("simulate", {"scenario": "3d-8-gpus", "set": {"plan.micro_batch": 2}},
                     "3d-8-gpus", "--set", "plan.micro_batch=2")
    confidence = simulated["confidence"]
    assert confidence["low_s"] <= simulated["step_time_s"] <= confidence["high_s"] and confidence["nearest"]
    same("simulate", {"scenario": "3d-8-gpus", "sweep": "plan.micro_batch=1,2"},
         "3d-8-gpus", "--sweep", "plan.micro_batch=1,2")
    same("list", {"kind": "clusters"}, "clusters")
    same("check", {"file": "3d-8-gpus"}, "3d-8-gpus")
    same("check", {"file": ["3d-8-gpus", "tiny-pp-4"]}, "3d-8-gpus", "tiny-pp-4")
    explained = same("explain", {"a": "3d-8-gpus", "b": "3d-8-gpus", "set": {"plan.schedule": "gpipe"}},
                     "3d-8-gpus", "3d-8-gpus", "--set", "plan.schedule=gpipe")
    assert explained["a"]["confidence"]["high_s"] > 0
    planned = same("plan", {"config": "gpt2-124m", "gpus": 8, "on": "dgx-a100-80gb"},
                   "gpt2-124m", "--gpus", "8", "--on", "dgx-a100-80gb")
    assert planned["assumed"] and planned["best"]["low_s"] <= planned["best"]["high_s"]
    found = same("search", {"scenario": "3d-8-gpus", "top": 3, "set": {"plan.micro_batch": None}},
                 "3d-8-gpus", "--top", "3", "--set", "plan.micro_batch=null")
    assert found["cases"][0]["best"][0]["low_s"] > 0

    inline, _ = server.call("simulate", {"scenario": SCENARIO})
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(SCENARIO, file)
        file.flush()
        assert without_clock(inline) == of_command("simulate", file.name)
    other = json.loads(json.dumps(SCENARIO))
    other["plan"]["schedule"] = "gpipe"
    both, _ = server.call("explain", {"a": SCENARIO, "b": other})
    assert any(key["key"] == "plan.schedule" for key in both["keys"])
    # What is no, and why: an answer. A note of the command comes beside it.
    unsound, text = server.call("simulate", {"scenario": "gpt3-175b-1024", "gpus": 128, "require_fit": True,
                                             "set": {"plan.data_parallel": None}})
    assert unsound["memory"]["fits"] or "does not fit in memory" in text
    assert server.end() == (0, "")


def what_was_meant():
    server = Server(rehearse)
    server.initialize()
    for tool, arguments, words in (
            ("simulate", {"scenario": "3d-8-gpu"}, "3d-8-gpus"),
            ("simulate", {"scenari": "3d-8-gpus"}, "the nearest known one is scenario"),
            ("simulate", {}, "scenario is missing"),
            ("simulate", {"scenario": None}, "scenario is missing"),
            ("simulate", {"scenario": 7}, "must be a text or an object, not 7"),
            ("simulate", {"scenario": "-"}, "give the document itself"),
            ("simulate", {"scenario": "a\0b"}, "zero byte"),
            ("simulate", {"scenario": "3d-8-gpus", "gpus": "eight"}, "a whole number from 1 to 1048576"),
            ("simulate", {"scenario": "3d-8-gpus", "gpus": 8.5}, "a whole number"),
            ("simulate", {"scenario": "3d-8-gpus", "gpus": -1}, "from 1 to"),
            ("simulate", {"scenario": "3d-8-gpus", "require_fit": "yes"}, "true or false"),
            ("simulate", {"scenario": "3d-8-gpus", "set": ["plan.micro_batch=2"]}, "object of keys and values"),
            ("simulate", {"scenario": "3d-8-gpus", "set": {"plan.microbatch": 2}}, "micro_batch"),
            ("simulate", {"scenario": "3d-8-gpus", "set": {"plan.schedule": "1f2b"}}, "1f1b"),
            ("simulate", {"scenario": "3d-8-gpus", "cluster": "dgx-h10"}, "dgx-h100"),
            ("simulate", {"scenario": {**SCENARIO, "model": "gpt2-125m"}}, "gpt2-124m"),
            ("simulate", {"scenario": {**SCENARIO, "plan": {"tensor_parallel": 5}}}, "scenario.json"),
            ("list", {"kind": "model"}, "models"),
            ("plan", {"config": "gpt2-124m", "gpus": 8}, "on is missing"),
            ("plan", {"config": "gpt2-124m", "gpus": 8, "on": "dgx-a100-80gb", "for": "megatorn"}, "megatron"),
            ("check", {"file": []}, "empty list"),
            ("check", {"file": ["--help"]}, "--help"),
            ("explain", {"a": "3d-8-gpus", "b": "--set=x"}, "no such file")):
        document, text = server.call(tool, arguments)
        assert document is None and words in text, (tool, arguments, text)
    for method, params, code, words in (
            ("tools/call", {"name": "simulat", "arguments": {}}, -32602, "simulate"),
            ("tools/call", {"arguments": {}}, -32602, "name is missing"),
            ("tools/call", {"name": "list", "arguments": []}, -32602, "must be an object"),
            ("tools/lists", None, -32601, "tools/list"),
            ("resources/list", None, -32601, "no method"),
            ("initialize", {}, -32602, "protocolVersion")):
        error = server.ask(method, params)["error"]
        assert error["code"] == code and words in error["message"], error
    assert server.end() == (0, "")


def bad_input():
    """Each line is answered, or dropped where it asks nothing; the server goes on."""
    server = Server(rehearse)

    def lives():
        wanted = server.send("ping")
        answer = server.take()
        assert answer == {"jsonrpc": "2.0", "id": wanted, "result": {}}, answer

    lives()
    ok = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"'
    for line, code in (
            (b"{", -32700), (b"nonsense", -32700), (b'{"jsonrpc": "2.0", "id": 1', -32700), (b"\0\0\0", -32700),
            (b"\xff\xfe", -32700), (ok + b"} {}", -32700), (b'{"a": 1, "a": 2}', -32700), (b"[" * 100000, -32700),
            (b'{"a":' * 50000 + b"1" + b"}" * 50000, -32700), (b'"' + b"x" * (9 << 20) + b'"', -32600),
            (b"[]", -32600), (b"1", -32600), (b"null", -32600), (b"{}", -32600), (b'{"jsonrpc": "1.0"}', -32600),
            (b'{"jsonrpc": "2.0", "id": 1}', -32600), (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
            (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600),
            (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', -32600),
            (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', -32600), (ok + b', "params": 7}', -32602),
            (ok + b', "params": []}', -32602), (b'[' + ok + b'}]', -32600),
            (b'{"jsonrpc": 2, "id": 1, "method": "ping"}', -32600)):
        server.write(line + b"\n")
        answer = server.take()
        assert answer["error"]["code"] == code, (line[:60], answer)
        lives()
    for line in (b"", b"   ", b"\r", b'{"jsonrpc": "2.0", "method": "notifications/unknown"}',
                 b'{"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "list"}}',
                 b'{"jsonrpc": "2.0", "id": 9, "result": {}}',
                 b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}}',
                 b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}}'):
        server.write(line + b"\n")
        lives()
    # Deep, wide and huge inside of arguments.
    deep = {"a": 1}
    for _ in range(150):
        deep = {"a": deep}
    for arguments in ({"scenario": deep}, {"scenario": {str(i): i for i in range(10000)}},
                      {"scenario": "x" * 1000000}, {"scenario": {**SCENARIO, "name": "x" * 100000, "gpus": 10 ** 18}},
                      {"scenario": SCENARIO, "set": {"plan." + "x" * 10000: 1}}):
        wanted = server.send("tools/call", {"name": "simulate", "arguments": arguments})
        answer = server.take()
        assert answer["id"] == wanted and answer["result"]["isError"], answer
        lives()
    # The last line may lack its end, and is answered.
    server.write(b'{"jsonrpc": "2.0", "id": "last", "method": "ping"}')
    server.process.stdin.close()
    assert server.take() == {"jsonrpc": "2.0", "id": "last", "result": {}}
    assert server.process.wait(timeout=60) == 0


def calls_of_their_own():
    """Calls run beside each other; one that is cancelled, too slow or killed does not end the others."""
    slow = {"name": "search", "arguments": {"scenario": "gpt3-175b-1024", "set": {
        "plan." + key: None for key in ("tensor_parallel", "pipeline_parallel", "data_parallel", "schedule",
                                        "virtual_stages", "micro_batch", "recompute", "zero_stage")}}}
    server = Server(rehearse)
    first = server.send("tools/call", slow)
    assert server.ask("ping")["result"] == {}
    server.write(json.dumps({"jsonrpc": "2.0", "id": first, "method": "tools/call", "params": slow}).encode() + b"\n")
    assert "under way" in server.take()["error"]["message"]
    server.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled",
                             "params": {"requestId": first}}).encode() + b"\n")
    assert server.call("list", {"kind": "models"})[0]
    second = server.send("tools/call", slow)
    children = []
    while not children:
        time.sleep(0.05)
        children = pathlib.Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    answer = server.take()
    assert answer["id"] == second and answer["result"]["isError"], answer
    assert "signal 9" in answer["result"]["content"][0]["text"]
    assert server.call("list", {"kind": "models"})[0]
    assert server.end() == (0, "")

    server = Server(rehearse, "--timeout", "1")
    wanted = server.send("tools/call", slow)
    answer = server.take()
    assert answer["id"] == wanted and "--timeout" in answer["result"]["content"][0]["text"], answer
    assert server.end() == (0, "")

    # A client that reads nothing while it asks a lot gets every answer.
    server = Server(rehearse)
    wanted = {server.send("tools/call", {"name": "list", "arguments": {"kind": kind}})
              for kind in ("models", "clusters", "schedules") * 10}
    assert {server.take()["id"] for _ in range(30)} == wanted
    assert server.end() == (0, "")


for test in (handshake, stateless, answers, what_was_meant, bad_input, calls_of_their_own):
    test()
    print(test.__name__, "passed")
