"""Reinforcement learning: AReaL, OpenRLHF, prime-rl, SkyRL, slime, trlX."""
