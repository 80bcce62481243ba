"""TrainingArguments, TRL and PEFT: scripts around `transformers.Trainer`."""
