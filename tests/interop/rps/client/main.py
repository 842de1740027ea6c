"""Play some trials one after the other: `python3 -m client.main ORCHESTRATOR COUNT`."""

import asyncio
import sys

import cog_settings
import cogment


async def main() -> None:
    context = cogment.Context(user_id="rps", cog_settings=cog_settings)
    controller = context.get_controller(cogment.Endpoint(sys.argv[1]))
    for number in range(1, int(sys.argv[2]) + 1):
        ended = asyncio.Event()
        watched = f"rps-{number}"

        async def watch(trial: str, ended: asyncio.Event) -> None:
            async for info in controller.watch_trials(trial_state_filters=[cogment.TrialState.ENDED]):
                if info.trial_id == trial:
                    ended.set()

        watching = asyncio.create_task(watch(watched, ended))
        await controller.start_trial(trial_config=cog_settings.trial.config_type(), trial_id_requested=watched)
        await ended.wait()
        watching.cancel()
        print(f"trial {watched} has ended", flush=True)


asyncio.run(main())
