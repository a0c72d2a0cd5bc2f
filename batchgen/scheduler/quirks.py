"""Known defects of the engine studied, each a switch: reproduced by `faithful`, mended by `corrected`."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Quirks:
    """True reproduces the defect. The letters are those of the list in docs/step.md."""

    #: b. `</tool_call>` (and a start at the reopen guard) is handed to the grammar hook twice.
    grammar_accepts_twice: bool = False
    #: c. A dropped EOS leaves its log probability in the list, so those after it are beside the wrong token.
    logprobs_of_dropped_eos: bool = False
    #: d. `</tool_call>` or a held EOS at the end of the budget does not finish the row: one token over max_tokens.
    one_token_over_budget: bool = False
    #: e. A swapped sequence comes back without a page to grow into, and may exhaust the pool in the next step.
    swap_in_without_growth: bool = False
    #: f. Deadlines and cancels reach active rows only; a parked request cannot time out, a spill forgets a cancel.
    parked_cannot_end: bool = False
    #: g. What a spill forgets: tool body, adaptive state, penalty window, guards, content counters.
    spill_forgets: bool = False
    #: i. `</think>` of a spontaneous block is streamed although the block's tokens were not.
    spontaneous_think_end_streamed: bool = False
    #: j. EOS holds and stop reasons look at the row's own token ids, the branches at those of the step.
    row_token_ids_decide: bool = False
    #: k. The seed of a step is seed + len(output_tokens): after a dropped token the same draw comes again.
    seed_reused_after_drop: bool = False
    #: l. History is rebuilt from prompt and outputs, without the tokens that were dropped but fed to the model.
    history_without_dropped: bool = False
    #: Section 5: one row that needs the host's pipeline sends all rows there; alone, a greedy row with penalties or
    #: bias takes the device's argmax, which applies neither: its tokens depend on its batch mates.
    argmax_ignores_penalties: bool = False

    @classmethod
    def faithful(cls) -> Quirks:
        """As the engine studied behaves. It re-prefills what the model was fed (l is not its defect)."""
        on = {field.name: True for field in fields(cls)}
        return cls(**on | {"history_without_dropped": False})

    @classmethod
    def corrected(cls) -> Quirks:
        """None of them: what `batchgen run --policy step` uses."""
        return cls()
