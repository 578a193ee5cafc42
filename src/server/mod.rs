//! The HTTP server: OpenAI's routes and llama.cpp's, and Ollama's, over one engine of many texts.
