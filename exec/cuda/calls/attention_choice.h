// SPDX-License-Identifier: Apache-2.0
// Which of attention's engines a shape runs on (kernels.h): where the device has wgmma, both are
// tried at the first call with that shape, as the products' algorithms are (gemm.h); of a run
// before its first step (cuda_trials.h). The faster one is kept, but wgmma only if both agree; else
// no shape gets it.
//
// A trial waits for the device and takes memory for its results, which it frees; where there is
// none (which is said once), and while a graph is captured, it is mma.sync. Another run may choose
// another engine, hence other last bits, unless one is asked for. A part of attention runs on what
// the whole of its shape would. Not thread-safe.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exec/cuda/calls/kernels.h"

namespace rehearse::exec::cuda {

class AttentionChoice {
 public:
  using Say = std::function<void(const std::string&)>;
  // has_wgmma: of the device. asked: "mma", "wgmma" (REQUIRES has_wgmma), "say" or empty: which
  // engine, without a trial; to say every choice and its times. say: may be null.
  AttentionChoice(bool has_wgmma, std::string_view asked, Say say);

  AttentionEngine forward(Stream stream, Type type, const AttentionShape& shape, const void* qkv);
  AttentionEngine backward(Stream stream, Type type, const AttentionShape& shape, const void* d_o,
                           const void* qkv, const void* o, const float* lse);

  // A line for each shape that was tried, and one where the engines differed: then all is mma.sync.
  // Lines that are taken are other processes'; where there is nothing to choose they do not count.
  std::string choices() const;
  void take(const std::string& line);

 private:
  struct Key {
    bool backward = false;
    std::int64_t tokens = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0, values = 0;
    auto operator<=>(const Key&) const = default;
  };
  // A part of the results, (rows, columns) with `stride` elements from row to row.
  struct Area {
    Type type{};
    std::int64_t at = 0;  // [B]
    std::int64_t rows = 0, columns = 0, stride = 0;
  };
  struct Trial {
    Key key;
    std::int64_t bytes = 0;  // of the results
    std::vector<Area> areas;
    std::function<int(AttentionEngine, std::byte* results)> run;
  };
  static Key key_of(bool backward, const AttentionShape& shape);
  bool open(Stream stream, Type type, const AttentionShape& shape) const;
  AttentionEngine choose(Stream stream, const Trial& trial);
  AttentionEngine tried(Stream stream, const Trial& trial, std::byte* results);

  std::optional<AttentionEngine> only_;
  bool differed_ = false;
  bool says_all_ = false;
  Say say_;
  bool said_no_memory_ = false;
  std::map<Key, AttentionEngine> chosen_;
};

}  // namespace rehearse::exec::cuda
