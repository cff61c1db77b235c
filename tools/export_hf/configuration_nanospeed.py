"""What a nanospeed model is made of, beside its weights."""

from transformers import PretrainedConfig


class NanospeedConfig(PretrainedConfig):
    """Written by nanospeed's export_hf: fields come from the record and the checkpoint's step.

    storage             "per_layer": a parameter for each part of each layer; "banks": one for all
                        layers' attention, one for their MLPs, one for each kind of gate
    split_attention_banks  with "banks": attention's weights are qk_bank and vo_bank
    qkvo_shape          with "per_layer": Q, K, V, O are "wide", [D, 4 D], or a "stack", [4, D, D]
    mlp_layout          an MLP's matrices: both [D, hidden] "dim_hidden", each [out, in] "out_in",
                        both [hidden, D] "hidden_dim"
    mlp_names           with "per_layer": what they are called
    head_layout         "vocab_dim" or "dim_vocab"
    head_name           of its parameter
    scalar_count        elements of the parameter `scalars`; fields called ..._scalar, ..._lambda and
                        ..._factor are places in it, or in x0_lambdas behind it; -1: none
    layers              a dict for each layer: attention, mlp, long_window, paired_heads,
                        key_offset (bools), value_embedding (which table is added to v; -1: none),
                        skip_from (the layer whose output comes in before this one; -1: none),
                        and places: skip_scalar, block_lambda (of the stream), x0_lambda,
                        attention_lambda (of v; the value embedding's follows), attention_factor (of
                        Q, K, V; that of O follows)
    smear_lambda        place of what weighs the token before in the embedding
    attention_input     "normed": the norm of the stream; "stream": the stream itself
    attention_gate      whether a gate per token and head follows attention
    rotary_pairs        "halves": features i and i + d/2 are turned; "neighbours": 2 i and 2 i + 1
    rotary_dtype        of cosines and sines, "bf16" or "f32"
    value_norm          whether v is normalised as q and k are
    value_mix           "scalars": attention lambdas weigh v and its embedding; "gate": a gate per
                        token and head weighs the embedding
    skip_weight         "sigmoid" of a scalar, a "plain" scalar, or a "gate" per token
    short_window,       tokens before its own that a query sees; the values that the weights were
    long_window         trained to last
    window_block        0, or the size of the blocks that windows consist of
    rotary_frequencies  radians a token, head_dim / 2 of them
    softcap_kind        "sigmoid": cap * sigmoid((logits + shift) / temperature)
                        "isru": cap * logits / sqrt(logits^2 + cap^2)
    backout_layer       the layer whose weighed output is taken out of the stream before the head;
                        -1: none; backout_lambda is the place of the weight
    bos_token_id,       one token, end-of-text: it begins a document, ends one, and pads in front;
    eos_token_id,       a file that lacks the latter two means the first
    pad_token_id
    nanospeed           what export_hf --import needs to write a checkpoint again
    """

    model_type = "nanospeed"

    def __init__(
        self,
        storage="per_layer",
        split_attention_banks=False,
        qkvo_shape="wide",
        mlp_layout="dim_hidden",
        mlp_names=("c_fc", "c_proj"),
        head_layout="vocab_dim",
        head_name="lm_head.weight",
        scalar_count=0,
        vocab_size=0,
        embedding_rows=0,
        hidden_size=0,
        intermediate_size=0,
        num_hidden_layers=0,
        num_attention_heads=1,
        head_dim=0,
        gate_features=0,
        value_embeddings=0,
        layers=(),
        smear_lambda=-1,
        attention_input="normed",
        attention_gate=False,
        rotary_pairs="halves",
        rotary_dtype="bf16",
        value_norm=False,
        value_mix="scalars",
        skip_weight="sigmoid",
        short_window=0,
        long_window=0,
        window_block=0,
        attention_scale=0.1,
        rotary_frequencies=(),
        softcap_kind="sigmoid",
        softcap=1.0,
        softcap_temperature=1.0,
        softcap_shift=0.0,
        backout_layer=-1,
        backout_lambda=-1,
        nanospeed=None,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        **kwargs,
    ):
        self.storage = storage
        self.split_attention_banks = split_attention_banks
        self.qkvo_shape = qkvo_shape
        self.mlp_layout = mlp_layout
        self.mlp_names = list(mlp_names)
        self.head_layout = head_layout
        self.head_name = head_name
        self.scalar_count = scalar_count
        self.vocab_size = vocab_size
        self.embedding_rows = embedding_rows
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.head_dim = head_dim
        self.gate_features = gate_features
        self.value_embeddings = value_embeddings
        self.layers = list(layers)
        self.smear_lambda = smear_lambda
        self.attention_input = attention_input
        self.attention_gate = attention_gate
        self.rotary_pairs = rotary_pairs
        self.rotary_dtype = rotary_dtype
        self.value_norm = value_norm
        self.value_mix = value_mix
        self.skip_weight = skip_weight
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
        self.backout_lambda = backout_lambda
        self.nanospeed = nanospeed
        kwargs.setdefault("tie_word_embeddings", False)
        super().__init__(**kwargs)
        # transformers 5 sets none of them where the file has none.
        self.bos_token_id = bos_token_id
        self.eos_token_id = bos_token_id if eos_token_id is None else eos_token_id
        self.pad_token_id = self.eos_token_id if pad_token_id is None else pad_token_id
