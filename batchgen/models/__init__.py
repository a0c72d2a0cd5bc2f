"""Models of the Llama family over paged attention, their files and their tokenizers."""

from batchgen.models.chat import ChatTemplateError
from batchgen.models.errors import ModelLoadError
from batchgen.models.llama import PagedCausalLM
from batchgen.models.loader import LoadedModel, context_length, load_model, state_dict_for_reference
from batchgen.models.tokenizer import ByteTokenizer, SubwordTokenizer, Tokenizer

__all__ = [
    "ByteTokenizer",
    "ChatTemplateError",
    "LoadedModel",
    "ModelLoadError",
    "PagedCausalLM",
    "SubwordTokenizer",
    "Tokenizer",
    "context_length",
    "load_model",
    "state_dict_for_reference",
]
