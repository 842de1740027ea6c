"""PPO of Stable-Baselines3 on trials: to the library, they are an environment of Gymnasium."""

from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

import trio_cogment.rl as tc

STEPS = 10_000


def main() -> None:
    env = Monitor(tc.make("CartPole-v1", store="memory:"))  # each episode is kept as a trial
    model = PPO("MlpPolicy", env, seed=1, device="cpu", n_steps=256)
    before, _ = evaluate_policy(model, env, n_eval_episodes=5)
    model.learn(STEPS)
    after, _ = evaluate_policy(model, env, n_eval_episodes=5)
    print(f"mean return before: {before:.0f}")
    print(f"better after {STEPS} steps: {after > 2 * before}")
    env.close()


if __name__ == "__main__":
    main()
