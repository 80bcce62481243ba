"""Inference engines: vLLM, SGLang, TGI, LMDeploy, TensorRT-LLM, llama.cpp."""
