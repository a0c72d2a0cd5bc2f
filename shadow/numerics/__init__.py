"""How far a candidate tensor is from the legacy one, per row or per (row, head). Needs numpy, never torch.

Tier 0 compares bits in place. Tier 1 is relative L2, `|candidate - legacy| / |legacy|` over the last axis, only
where bits differ. Tier 2 (`score_row`: first index, count, maximum error, both argmax) is for what is shown.

Policy, the same in every tier:

- Equal bits are equal, NaN and infinities included: they add no error. Any other NaN or infinity on either side
  makes the score of its row infinite, which no bound passes. A score is never NaN.
- Where both sides hold the same infinity or NaN, the rest of the row is scored without it.
- `-0.0` against `0.0` differs (tier 0) with score 0: a bound of zero does not pass it, any other bound does.
- A reference without length (all zero) scores infinite against anything but zeros.
- Shapes and dtypes must be equal: ValueError, nothing is broadcast or cast. What may be compared: float32,
  float64, float16, and bfloat16 as `Bfloat16`; other dtypes are compared exactly, not scored: ValueError.
- Rows without elements are equal, and count as nothing compared (`Scores.elements`).
"""

from shadow.numerics.arrays import Bfloat16, Floats, from_torch
from shadow.numerics.detail import RowScore, VectorScore, score_row
from shadow.numerics.score import Scores, score_rows

__all__ = ["Bfloat16", "Floats", "RowScore", "Scores", "VectorScore", "from_torch", "score_row", "score_rows"]
