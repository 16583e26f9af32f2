// SPDX-License-Identifier: Apache-2.0
// Shapes that several kernels share. A form that is left out is the plain one.
#pragma once

#include <cstdint>

#include "exec/backend/dropout.h"
#include "schedules/model/activation.h"

namespace rehearse::exec {

// A piece of a product, m = parts * rows: rows that lie in `parts` stretches of as many, from whose
// first rows to one another's are `apart` rows: a piece of every rank's shard.
struct PieceShape {
  std::int64_t parts = 1, rows = 0, apart = 0;
  std::int64_t n = 0, k = 0;
};

// Rotary positions (Su et al. 2021): pair i of a head turns by position * inverse_frequency[i].
struct RotaryShape {
  // (rotary_dim / 2), of the host; alive until the step ends
  const double* inverse_frequency = nullptr;
  std::int64_t rotary_dim = 0;  // of head_dim columns, the first so many turn. REQUIRES: even
  double attention_factor = 1;  // multiplies cosine and sine (YaRN, arXiv 2309.00071)
  bool interleaved = false;     // pairs (2 i, 2 i + 1); else (i, i + rotary_dim / 2)
};

// The factor of the query at position p: 1 + scale log(1 + floor((p + 1) / floor)).
struct Temperature {
  double scale = 0, floor = 1;
};

// What becomes of a score q k^T before its softmax: score * scale, soft cap, ALiBi, mask, dropout.
struct AttentionForm {
  double scale = 0;         // 0: 1 / sqrt(head_dim)
  double softcap = 0;       // c: c tanh(score / c) (Gemma 2, arXiv 2408.00118); 0: none
  std::int64_t window = 0;  // a query sees its own key and window - 1 before it; 0: all
  // Heads of the whole model whose slopes ALiBi takes (Press et al. 2022); 0: no ALiBi
  std::int64_t alibi_heads = 0;
  std::int64_t first_head = 0;  // of the whole model, the first that is here
  // Elements (heads): a learned logit beside every row's scores, whose value is zero; null: none
  const void* sinks = nullptr;
  // Dropout of the weights; rows are queries' tokens, columns are positions of keys. `first` is the
  // token at position 0 of the first sample here.
  DropoutShape dropout{};
  std::int64_t dropout_sequence = 0;  // tokens of a whole sample. REQUIRED where weights drop
  // Does it matter how far a key lies before its query?
  constexpr bool reads_positions() const {
    return window > 0 || alibi_heads > 0 || dropout.threshold > 0;
  }
  // But for the scale.
  constexpr bool plain() const {
    return softcap == 0 && window == 0 && alibi_heads == 0 && sinks == nullptr &&
           dropout.threshold == 0;
  }
};

struct AttentionShape {
  std::int64_t tokens = 0, sequence = 0;  // tokens = samples * sequence
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t value_dim = 0;  // of a head's values and of what it gives; 0: head_dim
  std::int64_t first = 0;      // rope: position of row 0; row t is at (first + t) % sequence
  AttentionForm form{};
  constexpr std::int64_t values() const { return value_dim > 0 ? value_dim : head_dim; }
  constexpr std::int64_t columns() const { return heads * head_dim + kv_columns(); }
  constexpr std::int64_t kv_columns() const { return kv_heads * (head_dim + values()); }
};

// Heads of latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): queries and keys have
// `plain` columns and behind them `rotary` ones; a key's rotary ones are the same in all heads.
struct LatentShape {
  std::int64_t tokens = 0, heads = 0;
  std::int64_t plain = 0, rotary = 0, values = 0;
  constexpr std::int64_t key() const { return plain + rotary; }
};

// Attention of a rank's queries to one block of keys and values, of which every sample has
// shape.sequence rows, as of queries.
struct AttentionPart {
  AttentionShape shape;
  std::int64_t query_begin = 0, query_end = 0;  // rows of each sample that attend
  std::int64_t key_begin = 0, key_end = 0;      // rows of the block's that they see
  // elements from a key to the next; the row's values: kv_heads * head_dim on
  std::int64_t key_stride = 0;
  // Query row i sees keys up to i only. REQUIRES: query_begin == key_begin, query_position ==
  // key_position
  bool causal = false;
  bool first = false;  // of the parts: the sums begin here, for all rows; sinks count here
  // Positions in the sample of query row 0 and key row 0: read by windows, ALiBi and dropout, where
  // rows of a sample follow one another.
  std::int64_t query_position = 0, key_position = 0;
};

// The vocabulary columns of one tensor-parallel rank: [first, first + valid) are tokens, the rest
// of `columns` is padding.
struct VocabularyShape {
  std::int64_t columns = 0, valid = 0, first = 0;
  std::int64_t frozen = -1;  // a token whose row gets no gradient from the input; -1: none
  float scale = 1;           // of the rows that are looked up
  // The logits are softcap tanh(logit / softcap) of what the product gave; 0: the product's own
  float softcap = 0;
};

// A residual sum and its norm: sum(rows, h) = x + dropped y + bias(h), out = its LayerNorm or
// RMSNorm. REQUIRES: sum and out lie beside x and y.
struct SumNorm {
  std::int64_t rows = 0, h = 0;
  const void *x = nullptr, *y = nullptr, *bias = nullptr;  // bias may be null
  void* sum = nullptr;
  const void *weight = nullptr, *norm_bias = nullptr;  // norm_bias may be null; RMSNorm has none
  double epsilon = 0;
  void* out = nullptr;
  float* statistics = nullptr;  // as layer_norm or rms_norm writes them
  double weight_offset = 0;     // of RMSNorm
  DropoutShape dropout{};       // of y + bias
};

// RMSNorms of stretches of `width` columns: in each row `groups` of them, side by side. Row r of an
// array begins at r * stride. Heads of queries and keys: groups = heads; their whole width: one
// group, which tensor-parallel ranks may share.
struct StridedNorm {
  std::int64_t rows = 0, groups = 1, width = 0, stride = 0;
  std::int64_t total = 0;  // elements of a group, over all ranks that share it
  double epsilon = 0;
  double weight_offset = 0;  // as of rms_norm
  // No rank shares a group: sums are taken where they are needed, in the same pass.
  bool alone = false;
};

// LayerNorm (centred) or RMSNorm of rows of which each of several ranks has `h` columns, `total`
// together, in two steps, between which they add up sums; contiguous.
struct SharedNorm {
  std::int64_t rows = 0, h = 0, total = 0;
  bool centred = false;
  double epsilon = 0;
  double weight_offset = 0;                                        // as of rms_norm
  constexpr std::int64_t sums() const { return centred ? 2 : 1; }  // of a row
};

// A router's choice: the `per_token` experts with the largest scores; of equal ones the lower.
//
// A score is the softmax of the token's logits over all experts, or the sigmoid of a logit. The
// weights of what is chosen are its scores, divided by their sum + 1e-20 where `normalised`, times
// `scale`. DeepSeek-V3 (arXiv 2412.19437, section 2.1.2) chooses by score + correction, a number
// for each expert that its weight never has, among the `kept_groups` of `groups` whose sums of
// their `group_best` largest such are the largest; of equal groups the lower.
// REQUIRES: groups divides experts; per_token <= experts of the kept groups.
struct RouteShape {
  std::int64_t tokens = 0, experts = 0, per_token = 0;
  bool normalised = false;
  bool sigmoid = false;
  float scale = 1;
  std::int64_t groups = 1, kept_groups = 1, group_best = 1;
  const float* correction = nullptr;  // (experts); null: nothing is added
  // What the losses of the router weigh in d_scores and d_logits: auxiliary_loss E / (k T^2) times
  // an expert's count, and 2 z_loss / T times the log of the sum. T tokens of a micro-batch, and
  // their counts: those of all ranks and slices that have a part of them.
  float auxiliary = 0, z = 0;
};

// What a rank's copies become where every expert takes `capacity` of them: those with the largest
// weights, of equal ones the earlier token's.
struct DropShape {
  std::int64_t tokens = 0, experts = 0, per_token = 0;
  std::int64_t capacity = 0;
};

// Copies of tokens, a row for each expert in [first, first + experts) that a token chose.
struct CopiesShape {
  std::int64_t tokens = 0, per_token = 0;
  std::int64_t first = 0, experts = 0;
  std::int64_t room = 0;  // rows: of more the places are counted, not written
  // Slots: the rows of `per_slot` experts begin at a multiple of `slot` rows, and of more than that
  // the places are counted, not written. 0: rows lie one behind the other
  std::int64_t per_slot = 0, slot = 0;
};

// Tokens that go once to every rank that has experts of theirs: they visit it.
struct VisitsShape {
  std::int64_t ranks = 0, rank = 0;        // those that share the experts; this one
  std::int64_t tokens = 0, per_token = 0;  // of each rank
  std::int64_t per_rank = 0;               // experts
  std::int64_t room = 0;                   // tokens that may arrive: further ones are left out
  // Slots: every rank's tokens for another begin at a multiple of `slot` rows, and further ones are
  // left out, here and there. 0: they lie one behind the other
  std::int64_t slot = 0;
  // Rows that leave, at most.
  std::int64_t leaving() const {
    return slot > 0 ? ranks * slot : tokens * (per_token < ranks ? per_token : ranks);
  }
};

// Rows that came from `sources` ranks, expert by expert from each, tokens in order. They lie in
// `members` buffers of `stride` rows, one behind the other: source s in buffer s % members.
struct ArrivedShape {
  std::int64_t sources = 0, members = 1, stride = 0;
  std::int64_t experts = 0;                // of the model
  std::int64_t first = 0, per_source = 0;  // those that are here: [first, first + per_source)
  std::int64_t room = 0;                   // likewise
  // Each source's rows are a slot of so many, sources of a buffer one behind the other. 0: as many
  // as came
  std::int64_t slot = 0;
};

// Rows of experts as begin(experts + 1) counts them, for every step's sum and its largest number of
// rows that lie together: of `together` experts. For the largest number, `lines` such arrays.
struct CountShape {
  std::int64_t experts = 0, together = 0;
  std::int64_t lines = 1;
};

// Products of several experts, each with a matrix of its own: rows [begin[e], begin[e + 1]) are
// expert e's, of `rows` that there is room for. begin(experts + 1) is memory of the device.
struct GroupedShape {
  std::int64_t experts = 0, rows = 0;
  const std::int32_t* begin = nullptr;
};

// The gated unit of gpt_oss (transformers, modeling_gpt_oss.py, GptOssExperts._apply_gate).
struct ClampedGlu {
  std::int64_t rows = 0, f = 0;
  float alpha = 1, limit = 0;  // of the sigmoid's argument; of gate and up
};

}  // namespace rehearse::exec
