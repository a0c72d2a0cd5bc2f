"""A helper that awaits is asynchronous and awaited; one that does not is an ordinary method."""

import asyncio


class Worker:
    async def fetch(self, key):
        await asyncio.sleep(0)
        if key == "bad":
            raise KeyError(key)
        return key * 2

    async def serve(self, keys: list[str], *, retries: int = 1):
        # Sort them out
        good = []
        for key in keys:
            if key and key not in good:
                good.append(key)
        good.sort()

        # Fetch each, again if need be
        found = {}
        for key in good:
            for attempt in range(retries + 1):
                try:
                    found[key] = await self.fetch(key)
                    break
                except KeyError:
                    found[key] = f"failed {attempt}"

        # Put the answer together
        answer = []
        for key, value in found.items():
            answer.append(f"{key}={value}")
            if len(answer) > 5:
                answer.pop(0)
        return ", ".join(answer)


def exercise():
    return [asyncio.run(Worker().serve(["b", "a", "bad", "a", ""], retries=2))]
