# SPDX-License-Identifier: Apache-2.0
"""A client of the Model Context Protocol for tests: lines in, lines out, nothing taken on trust."""
import json
import queue
import subprocess
import threading

KEY = "io.modelcontextprotocol/"


class Server:
    """`rehearse serve`; every line that it writes is checked to be one JSON-RPC message."""

    def __init__(self, rehearse, *flags):
        self.process = subprocess.Popen([rehearse, "serve", *flags], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.answers = queue.Queue()
        self.next = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(None)

    def write(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, method, params=None, **more):
        """Sends a request; returns its id."""
        self.next += 1
        message = {"jsonrpc": "2.0", "id": self.next, "method": method, **more}
        if params is not None:
            message["params"] = params
        self.write(json.dumps(message).encode() + b"\n")
        return message["id"]

    def take(self, timeout=120):
        """The next answer."""
        line = self.answers.get(timeout=timeout)
        assert line is not None, "the server has ended: " + self.process.stderr.read().decode()
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        answer = json.loads(line.decode("utf-8"), parse_constant=lambda word: 1 / 0)  # no NaN
        assert answer["jsonrpc"] == "2.0" and "id" in answer, answer
        assert ("result" in answer) != ("error" in answer), answer
        if "error" in answer:
            assert isinstance(answer["error"]["code"], int) and answer["error"]["message"], answer
        return answer

    def ask(self, method, params=None):
        """One request and its answer, with nothing else under way."""
        wanted = self.send(method, params)
        answer = self.take()
        assert answer["id"] == wanted, (answer, wanted)
        return answer

    def call(self, tool, arguments):
        return check_result(self.ask("tools/call", {"name": tool, "arguments": arguments}))

    def initialize(self, version="2025-11-25"):
        answer = self.ask("initialize", {"protocolVersion": version, "capabilities": {},
                                         "clientInfo": {"name": "test", "version": "1"}})
        self.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        return answer["result"]

    def end(self):
        """Closes its input; returns its exit code and what it said on standard error."""
        self.process.stdin.close()
        code = self.process.wait(timeout=120)
        return code, self.process.stderr.read().decode()


def check_result(answer):
    """A result of tools/call that is as the protocol has it: (document or None, text)."""
    assert "result" in answer, answer
    result = answer["result"]
    content = result["content"]
    assert content and all(part["type"] == "text" and part["text"] for part in content), result
    assert isinstance(result["isError"], bool), result
    if result["isError"]:
        text = content[0]["text"]
        assert "structuredContent" not in result and "\n" not in text, result
        assert "internal" not in text and "report it" not in text and "rehearse-serve-" not in text, text
        return None, text
    document = json.loads(content[0]["text"])
    assert "rehearse-serve-" not in content[0]["text"], "the place of a document: " + content[0]["text"]
    if isinstance(document, dict):
        assert result["structuredContent"] == document
    return document, " ".join(part["text"] for part in content[1:])
