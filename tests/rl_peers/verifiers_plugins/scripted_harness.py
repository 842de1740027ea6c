"""A harness of verifiers that asks the model from this process, as `null` does from one of its own.

The program of `null` has its packages downloaded; what both send is the same.
"""

from typing import Any

import httpx
import verifiers.v1 as vf


class ScriptedHarnessConfig(vf.HarnessConfig):  # type: ignore[misc]  # not installed where types are checked
    """Nothing to configure."""


class ScriptedHarness(vf.Harness[ScriptedHarnessConfig]):  # type: ignore[misc]  # as above
    """One request for each turn."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any
    ) -> Any:
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}]
        messages += [{"role": message.role, "content": message.content} for message in prompt]
        async with httpx.AsyncClient() as client:
            answer = await client.post(
                f"{endpoint}/chat/completions",
                headers={"authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": messages},
                timeout=60,
            )
        code = 0 if answer.is_success else 1
        return vf.ProgramResult(exit_code=code, stdout="", stderr="" if answer.is_success else answer.text)


__all__ = ["ScriptedHarness"]
