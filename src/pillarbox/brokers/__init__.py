"""Where messages go: one module or package a broker, chosen by `registry`. They know nothing of the relay."""
