llamafactory-cli chat cust/chat_llama3_lora.yaml
