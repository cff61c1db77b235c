"""What a nanospeed model is made of, beside its weights."""

from transformers import PretrainedConfig


class NanospeedConfig(PretrainedConfig):
    """Written by nanospeed's export_hf: fields come from the record and the checkpoint's step.

    weight_style        "per_layer", "per_layer_bf16" or "banks": names, shapes, roles of weights
    layers              a dict for each layer: attention, mlp, long_window, paired_heads,
                        key_offset (bools), value_embedding (which table is added to v; -1: none),
                        skip_from (the layer whose output comes in before this one; -1: none)
    short_window,       tokens before its own that a query sees; the values that the weights were
    long_window         trained to last
    window_block        0, or the size of the blocks that windows consist of
    rotary_frequencies  radians a token, head_dim / 2 of them
    softcap_kind        "sigmoid": cap * sigmoid((logits + shift) / temperature)
                        "isru": cap * logits / sqrt(logits^2 + cap^2)
    backout_layer       the layer whose weighed output is taken out of the stream before the head;
                        -1: none
    split_attention_banks  with "banks": attention's weights are qk_bank and vo_bank
    bos_token_id,       one token, end-of-text: it begins a document, ends one, and pads in front;
    eos_token_id,       a file that lacks the latter two means the first
    pad_token_id
    nanospeed           what export_hf --import needs to write a checkpoint again
    """

    model_type = "nanospeed"

    def __init__(
        self,
        weight_style="per_layer",
        vocab_size=0,
        embedding_rows=0,
        hidden_size=0,
        intermediate_size=0,
        num_hidden_layers=0,
        num_attention_heads=1,
        head_dim=0,
        gate_features=12,
        value_embeddings=3,
        split_attention_banks=False,
        layers=(),
        short_window=0,
        long_window=0,
        window_block=0,
        attention_scale=0.1,
        rotary_frequencies=(),
        softcap_kind="sigmoid",
        softcap=30.0,
        softcap_temperature=7.5,
        softcap_shift=0.0,
        backout_layer=-1,
        nanospeed=None,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        **kwargs,
    ):
        self.weight_style = weight_style
        self.vocab_size = vocab_size
        self.embedding_rows = embedding_rows
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.head_dim = head_dim
        self.gate_features = gate_features
        self.value_embeddings = value_embeddings
        self.split_attention_banks = split_attention_banks
        self.layers = list(layers)
        self.short_window = short_window
        self.long_window = long_window
        self.window_block = window_block
        self.attention_scale = attention_scale
        self.rotary_frequencies = list(rotary_frequencies)
        self.softcap_kind = softcap_kind
        self.softcap = softcap
        self.softcap_temperature = softcap_temperature
        self.softcap_shift = softcap_shift
        self.backout_layer = backout_layer
        self.nanospeed = nanospeed
        kwargs.setdefault("tie_word_embeddings", False)
        super().__init__(**kwargs)
        # transformers 5 sets none of them where the file has none.
        self.bos_token_id = bos_token_id
        self.eos_token_id = bos_token_id if eos_token_id is None else eos_token_id
        self.pad_token_id = self.eos_token_id if pad_token_id is None else pad_token_id
