"""axolotl configs."""
