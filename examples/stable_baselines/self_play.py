"""PPO of Stable-Baselines3 against its own stored versions, in four games at once; every game is kept."""

import io
from pathlib import Path

from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor

import trio_cogment.rl as tc

ROUNDS = 3
STEPS = 1200


def stored(model):
    data = io.BytesIO()
    model.save(data)
    return data.getvalue()


def load(data):
    opponent = PPO.load(io.BytesIO(data), device="cpu")
    return lambda observation: int(opponent.predict(observation)[0])


def main() -> None:
    Path("games.db").unlink(missing_ok=True)
    games = tc.make_vec(
        "rps_v2",
        4,
        seats={"player_1": tc.model("rps", load=load)},  # the newest version
        model_registry="models",
        store="sqlite:games.db",
    )
    env = tc.SB3VecEnv(games)
    model = PPO("MlpPolicy", VecMonitor(env), seed=1, device="cpu", n_steps=150, batch_size=150)
    for _ in range(ROUNDS):
        version = env.store_model("rps", stored(model))
        model.learn(STEPS, reset_num_timesteps=False)
        print(f"learned against version {version}")
    env.close()
    done = tc.export("sqlite:games.db", parquet="games")
    print(f"more than {ROUNDS * STEPS // 15 - 1} games: {done.trials >= ROUNDS * STEPS // 15}")


if __name__ == "__main__":
    main()
