"""A client's call of an actor of Ray, 16 bytes there and back, one in flight: the median in seconds as JSON.

Usage: ray_ask.py CALLS
"""
import json
import statistics
import sys
import time

import ray

WARM_CALLS = 200


@ray.remote(num_cpus=1)
class Echo:
    def ask(self, payload):
        return payload


def main():
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    actor, payload, seconds = Echo.remote(), bytes(16), []
    calls = int(sys.argv[1])
    for index in range(WARM_CALLS + calls):
        begin = time.perf_counter()
        ray.get(actor.ask.remote(payload))
        if index >= WARM_CALLS:
            seconds.append(time.perf_counter() - begin)
    print(json.dumps({"ask_seconds": statistics.median(seconds), "version": ray.__version__}))
    ray.shutdown()


if __name__ == "__main__":
    main()
