"""The demonstration: real work through a real queue while a worker is killed in the middle of an effect.

One job for every module of the running Python's standard library: parse it, count what is in it, hash it, and write one
catalogue row as an effect. Two workers; one is killed with SIGKILL while the transaction of an effect is open. In the end
everything is there, once: compared with an independent walk over the same files.
"""
