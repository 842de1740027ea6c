"""Proximal policy optimisation in one file, in the style of CleanRL: written for any vector environment of Gymnasium.

Nothing here knows trials. The constructor of the environments is the only argument that a test changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions.categorical import Categorical

STEPS = 64
UPDATES = 4
EPOCHS = 2
MINIBATCHES = 4
LEARNING_RATE = 2.5e-3
GAMMA = 0.99
LAMBDA = 0.95
CLIP = 0.2
ENTROPY = 0.01
VALUE = 0.5
MAX_GRADIENT = 0.5


def layer(inputs: int, outputs: int, gain: float) -> Any:
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.constant_(linear.bias, 0.0)
    return linear


class Agent(nn.Module):  # type: ignore[misc]  # torch is not installed where types are checked
    def __init__(self, envs: Any) -> None:
        super().__init__()
        inputs = int(np.prod(envs.single_observation_space.shape))
        self.critic = nn.Sequential(layer(inputs, 32, 2**0.5), nn.Tanh(), layer(32, 1, 1.0))
        self.actor = nn.Sequential(layer(inputs, 32, 2**0.5), nn.Tanh(), layer(32, envs.single_action_space.n, 0.01))

    def act(self, observation: Any, action: Any = None) -> tuple[Any, Any, Any, Any]:
        distribution = Categorical(logits=self.actor(observation))
        if action is None:
            action = distribution.sample()
        return action, distribution.log_prob(action), distribution.entropy(), self.critic(observation).flatten()


def train(make_envs: Callable[[], Any], seed: int) -> tuple[list[float], np.ndarray[Any, Any]]:
    """Train; return the returns of the episodes, and the last parameters."""
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(make_envs())
    agent = Agent(envs)
    optimizer = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE, eps=1e-5)
    shape = (STEPS, envs.num_envs)
    observations = torch.zeros((*shape, *(envs.single_observation_space.shape or ())))
    actions, logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(5))
    returns: list[float] = []

    reset, _ = envs.reset(seed=seed)
    following, following_done = torch.Tensor(reset), torch.zeros(envs.num_envs)
    for _update in range(UPDATES):
        for step in range(STEPS):
            observations[step], dones[step] = following, following_done
            with torch.no_grad():
                action, logprobs[step], _, values[step] = agent.act(following)
            actions[step] = action
            seen, reward, terminations, truncations, infos = envs.step(action.numpy())
            rewards[step] = torch.tensor(reward)
            following, following_done = torch.Tensor(seen), torch.Tensor(np.logical_or(terminations, truncations))
            if "episode" in infos:
                returns += [float(found) for found in infos["episode"]["r"][infos["_episode"]]]
        advantages = estimated(agent, rewards, values, dones, following, following_done)
        improve(agent, optimizer, observations, actions, logprobs, advantages, values)
    envs.close()
    return returns, torch.cat([parameter.flatten() for parameter in agent.parameters()]).detach().numpy()


def estimated(agent: Agent, rewards: Any, values: Any, dones: Any, following: Any, following_done: Any) -> Any:
    """Generalised advantage estimation."""
    advantages, last = torch.zeros_like(rewards), 0
    with torch.no_grad():
        next_value = agent.critic(following).flatten()
    for step in reversed(range(STEPS)):
        alive = 1.0 - (following_done if step == STEPS - 1 else dones[step + 1])
        next_values = next_value if step == STEPS - 1 else values[step + 1]
        delta = rewards[step] + GAMMA * next_values * alive - values[step]
        advantages[step] = last = delta + GAMMA * LAMBDA * alive * last
    return advantages


def improve(
    agent: Agent, optimizer: Any, observations: Any, actions: Any, logprobs: Any, advantages: Any, values: Any
) -> None:
    """Some epochs over the batch, in minibatches."""
    observations = observations.reshape((-1, observations.shape[-1]))
    actions, logprobs, advantages, values = (part.reshape(-1) for part in (actions, logprobs, advantages, values))
    targets = advantages + values
    indexes = np.arange(len(actions))
    for _epoch in range(EPOCHS):
        np.random.shuffle(indexes)
        for chosen in np.split(indexes, MINIBATCHES):
            _, logprob, entropy, value = agent.act(observations[chosen], actions.long()[chosen])
            ratio = (logprob - logprobs[chosen]).exp()
            advantage = advantages[chosen]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            policy_loss = torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            value_loss = 0.5 * ((value - targets[chosen]) ** 2).mean()
            optimizer.zero_grad()
            (policy_loss - ENTROPY * entropy.mean() + VALUE * value_loss).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), MAX_GRADIENT)
            optimizer.step()
