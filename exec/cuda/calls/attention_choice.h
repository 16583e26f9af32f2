// SPDX-License-Identifier: Apache-2.0
// Which of attention's engines a shape runs on (kernels.h): where the device has wgmma, or cuDNN is
// there, all are tried at the first call with that shape, as the products' algorithms are (gemm.h);
// of a run before its first step (cuda_trials.h). The fastest is kept, but another than mma.sync
// only if its results agree with those; an engine whose results do not is left out of all shapes.
// cuDNN is also left out of the shapes that it refuses, which is said once per reason.
//
// A trial waits for the device and takes memory for its results, which it frees; where there is
// none (which is said once), and while a graph is captured, it is mma.sync. Another run may choose
// another engine, hence other last bits, unless one is asked for. A part of attention runs on what
// the whole of its shape would, but for cuDNN: on the fastest of the others. Not thread-safe.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "exec/cuda/calls/kernels.h"
#include "exec/cuda/cudnn/attention.h"

namespace rehearse::exec::cuda {

class AttentionChoice {
 public:
  using Say = std::function<void(const std::string&)>;
  // has_wgmma: of the device. asked (CudaOptions::attention): "mma", "wgmma" (REQUIRES has_wgmma),
  // "cudnn" (REQUIRES cudnn; where it takes the shape): without a trial; "say": every choice and
  // its times. say and cudnn may be null; cudnn outlives this.
  AttentionChoice(bool has_wgmma, std::string_view asked, Say say, CudnnAttention* cudnn = nullptr);

  AttentionEngine forward(Stream stream, Type type, const AttentionShape& shape, const void* qkv,
                          bool part = false);
  AttentionEngine backward(Stream stream, Type type, const AttentionShape& shape, const void* d_o,
                           const void* qkv, const void* o, const float* lse, bool part = false);
  // What the plans of cuDNN's that are chosen want beside their arrays [B].
  std::int64_t scratch() const;
  // Nothing runs on cuDNN from now on: there is no memory for that. Says so.
  void leave_out_cudnn(const std::string& why);

  // A line for each shape that was tried, and one where wgmma or cuDNN differed: then nothing runs
  // on it. Lines that are taken are other processes'; where there is nothing to choose they do not
  // count, and where cuDNN does not do what it did there, the fastest of the others does.
  std::string choices() const;
  void take(Type type, const std::string& line);

 private:
  struct Key {
    bool backward = false;
    std::int64_t tokens = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0, values = 0;
    std::int64_t window = 0;
    bool part = false;
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
    Type type{};
    AttentionShape shape;
    std::int64_t bytes = 0;  // of the results
    std::vector<Area> areas;
    std::function<int(AttentionEngine, std::byte* results, void* scratch)> run;
  };
  struct Outcome {
    float ms = -1;  // negative: it fails
    bool agrees = false;
    float apart = 0;  // of the largest value
  };
  static Key key_of(bool backward, const AttentionShape& shape, bool part);
  bool wgmma_computes(Type type, const AttentionShape& shape) const;
  bool cudnn_computes(Type type, const AttentionShape& shape, bool part) const;
  AttentionEngine engine(Stream stream, const Trial& trial);
  std::int64_t prepare(const Trial& trial);
  AttentionEngine choose(Stream stream, const Trial& trial);
  AttentionEngine tried(Stream stream, const Trial& trial, std::byte* results,
                        std::int64_t scratch_bytes);
  Outcome against(Stream stream, const Trial& trial, AttentionEngine engine, std::byte* results,
                  void* scratch) const;
  void leave_out(AttentionEngine engine);
  AttentionEngine fastest_of_ours(const Key& key) const;
  void refuse(const std::string& what, const std::string& why);
  static std::string text_of(const Key& key);

  const bool has_wgmma_;
  CudnnAttention* const cudnn_;
  bool may_choose_ = true;  // nothing was asked for
  AttentionEngine asked_ = AttentionEngine::MmaSync;
  bool wgmma_differed_ = false, cudnn_differed_ = false;
  bool says_all_ = false;
  Say say_;
  bool said_no_memory_ = false;
  std::set<std::string> said_refusals_;
  std::map<Key, std::int64_t> scratch_;              // of plans that were made
  std::map<Key, AttentionEngine> chosen_, of_ours_;  // of_ours_: what was tried here
};

}  // namespace rehearse::exec::cuda
