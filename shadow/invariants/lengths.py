"""Lengths of a sequence agree with each other, and with the pages that hold it."""

from __future__ import annotations

from shadow.invariants.invariant import PlainInvariant
from shadow.observation import Point, Violation
from shadow.observe.probe import Subject


class SequenceMetadata(PlainInvariant):
    """What the sequence model says of itself (`validate_metadata`), and of its indexes, is sound."""

    name = "sequence-metadata"
    points = frozenset((Point.DECODE, Point.BOUNDARY, Point.END))

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        looked_at, found = 0, []
        local = getattr(subject.worker, "_uuid_to_local_map", {})
        for entry in subject.entries:
            validate = getattr(entry, "validate_metadata", None)
            if validate is not None:
                looked_at += 1
                label = subject.names.label(entry)
                for problem in validate(entry.uuid in local):
                    found.append(Violation(self.name, problem, label))
        validate_indexes = getattr(getattr(subject.worker, "global_batch", None), "validate_indexes", None)
        if validate_indexes is not None and point is not Point.DECODE:
            looked_at += 1
            found += [Violation(self.name, problem) for problem in validate_indexes()]
        return looked_at, found


class ContextLength(PlainInvariant):
    """Context is prompt and decoded tokens; an eviction moves tokens from one to the other and adds none."""

    name = "context-length"
    points = frozenset((Point.PREFILL, Point.DECODE, Point.BOUNDARY, Point.END))

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        found = []
        for entry in subject.entries:
            prompt = getattr(entry, "original_prompt_length", entry.prompt_length)
            context, decoded = entry.current_context_length, entry.decoded_length
            limit = getattr(entry, "original_max_decode_length", entry.max_decode_length)
            if context != prompt + decoded or not 0 <= decoded <= limit:
                text = f"context {context}, prompt {prompt}, decoded {decoded} of at most {limit}"
                found.append(Violation(self.name, text, subject.names.label(entry)))
        return len(subject.entries), found


class HeldPages(PlainInvariant):
    """The pages that a sequence's metadata counts are those that the pools gave it, on the GPU and on the host."""

    name = "held-pages"
    points = frozenset((Point.DECODE, Point.BOUNDARY, Point.END))

    def missing(self, subject: Subject) -> str | None:
        return None if hasattr(subject.worker, "_sequences_with_gpu_kv") else "it does not note who has pages"

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        looked_at, found = 0, []
        local = getattr(subject.worker, "_uuid_to_local_map", {})
        places = [(name, pool._sequences, "gpu_pages_allocated") for name, pool in subject.pools()]
        places += [(name, view._pages, "host_pages_allocated") for name, view in subject.hosts()]
        decoding = {int(index) for index in subject.wrapper.cur_batch or ()}
        for entry in subject.entries:
            for name, held, counted in places:
                if entry.uuid not in local:
                    continue
                if counted == "gpu_pages_allocated" and entry.global_idx not in decoding:
                    continue  # one that is being loaded has its pages, and is told so when it joins
                looked_at += 1
                have, says = len(held.get(entry.global_idx, ())), getattr(entry, counted)
                if have != says:
                    label = subject.names.label(entry)
                    text = f"{label} holds {have} pages of pool {name}, its {counted} is {says}"
                    found.append(Violation(self.name, text, label))
        return looked_at, found
