// Shapes that several kernels share.
#pragma once

#include <cstdint>

namespace rehearse::exec {

struct AttentionShape {
  std::int64_t tokens = 0, sequence = 0;      // tokens = samples * sequence
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t columns() const { return (heads + 2 * kv_heads) * head_dim; }
};

// The vocabulary columns of one tensor-parallel rank: [first, first + valid) are tokens, the rest of
// `columns` is padding.
struct VocabularyShape {
  std::int64_t columns = 0, valid = 0, first = 0;
};

}  // namespace rehearse::exec
