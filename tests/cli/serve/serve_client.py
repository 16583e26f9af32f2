# SPDX-License-Identifier: Apache-2.0
"""The protocol's reference client (package `mcp` of Python's registry) connects, lists and calls. Exit 77 where there
is none. usage: serve_client.py REHEARSE; REHEARSE_MCP_PYTHON names a Python that has it."""
import os
import sys

if "REHEARSE_MCP_PYTHON" in os.environ and os.environ.get("REHEARSE_MCP_INSIDE") is None:
    os.environ["REHEARSE_MCP_INSIDE"] = "1"
    python = os.environ["REHEARSE_MCP_PYTHON"]
    os.execv(python, [python, os.path.abspath(__file__), *sys.argv[1:]])
try:
    import anyio
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
except ImportError as why:
    print("SKIPPED: no reference client of the protocol:", why, "(pip install mcp)")
    sys.exit(77)


async def main():
    async with stdio_client(StdioServerParameters(command=sys.argv[1], args=["serve"])) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            tools = await session.list_tools()
            assert [tool.name for tool in tools.tools] == ["plan", "simulate", "search", "check", "explain", "list"]
            result = await session.call_tool("simulate", {"scenario": "3d-8-gpus"})
            assert not getattr(result, "isError", getattr(result, "is_error", None)), result
            assert '"schema":"rehearse.prediction/1"' in result.content[0].text.replace(" ", "")
            wrong = await session.call_tool("simulate", {"scenario": "3d-8-gpu"})
            assert getattr(wrong, "isError", getattr(wrong, "is_error", None)), wrong
            assert "3d-8-gpus" in wrong.content[0].text
    print("the reference client connects, lists and calls")


anyio.run(main)
