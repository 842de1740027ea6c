"""Simulated runs: a seed decides the order of the tasks, and time, network and disks are simulated."""
