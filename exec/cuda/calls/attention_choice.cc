// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/calls/attention_choice.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <utility>

#include "exec/cuda/calls/best_time.h"

namespace rehearse::exec::cuda {
namespace {

using enum AttentionEngine;

constexpr int kRepetitions = 3;  // of an engine that is timed; the fastest counts
// How far apart the engines may be, as a share of the largest value. Either engine may be off by
// half: P and dS are rounded to 16 bits, the result once more (the kernels' tests have the same
// bound); lse is fp32.
constexpr float kTolerance = 2e-2F, kFloatTolerance = 1e-4F;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

AttentionChoice::AttentionChoice(bool has_wgmma, std::string_view asked, Say say)
    : says_all_(asked == "say"), say_(std::move(say)) {
  if (!has_wgmma || asked == "mma") only_ = MmaSync;
  if (has_wgmma && asked == "wgmma") only_ = Wgmma;
}

AttentionChoice::Key AttentionChoice::key_of(bool backward, const AttentionShape& s) {
  return {backward, s.tokens, s.sequence, s.heads, s.kv_heads, s.head_dim, s.values()};
}

// May there be a trial? Only where tensor cores run (kernels.h), and not in a capture.
bool AttentionChoice::open(Stream stream, Type type, const AttentionShape& s) const {
  if (only_ || !on_tensor_cores(type, s)) return false;
  cudaStreamCaptureStatus status{};
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
         status == cudaStreamCaptureStatusNone;
}

namespace {

// "attention BACKWARD tokens sequence heads kv_heads head_dim values", as a line's key.
constexpr std::string_view kLine = "attention ", kDiffered = "attention differed=";

}  // namespace

std::string AttentionChoice::choices() const {
  std::string lines;
  if (differed_) return lines.append(kDiffered).append("1\n");
  for (const auto& [k, engine] : chosen_) {
    lines += kLine;
    for (const std::int64_t number : {std::int64_t{k.backward}, k.tokens, k.sequence, k.heads,
                                      k.kv_heads, k.head_dim, k.values}) {
      lines += std::to_string(number) + ' ';
    }
    lines.back() = '=';
    lines += engine == Wgmma ? "1\n" : "0\n";
  }
  return lines;
}

void AttentionChoice::take(const std::string& line) {
  if (only_ || !line.starts_with(kLine)) return;
  if (line.starts_with(kDiffered)) {
    only_ = MmaSync;
    differed_ = true;
    return chosen_.clear();
  }
  std::istringstream in(line.substr(kLine.size()));
  Key k;
  int engine = 0;
  char equals = 0;
  in >> k.backward >> k.tokens >> k.sequence >> k.heads >> k.kv_heads >> k.head_dim >> k.values >>
      equals >> engine;
  if (in.fail() || equals != '=') return;
  chosen_.insert_or_assign(k, engine == 1 ? Wgmma : MmaSync);
}

AttentionEngine AttentionChoice::forward(Stream stream, Type type, const AttentionShape& s,
                                         const void* qkv) {
  const Key key = key_of(false, s);
  if (const auto found = chosen_.find(key); found != chosen_.end()) return found->second;
  if (!open(stream, type, s)) return only_.value_or(MmaSync);
  const std::int64_t wide = s.heads * s.values(), lse_at = aligned(2 * s.tokens * wide);
  return choose(stream, {.key = key,
                         .bytes = aligned(lse_at + 4 * s.heads * s.tokens),
                         .areas = {{type, 0, s.tokens, wide, wide},
                                   {Type::Float32, lse_at, s.heads, s.tokens, s.tokens}},
                         .run = [=](AttentionEngine engine, std::byte* results) {
                           auto* lse = reinterpret_cast<float*>(results + lse_at);
                           return attention(stream, type, s, qkv, results, lse, engine);
                         }});
}

AttentionEngine AttentionChoice::backward(Stream stream, Type type, const AttentionShape& s,
                                          const void* d_o, const void* qkv, const void* o,
                                          const float* lse) {
  const Key key = key_of(true, s);
  if (const auto found = chosen_.find(key); found != chosen_.end()) return found->second;
  if (!open(stream, type, s)) return only_.value_or(MmaSync);
  const std::int64_t queries = s.heads * s.head_dim, keys = s.kv_heads * s.head_dim;
  const std::int64_t columns = s.columns(), delta_at = aligned(2 * s.tokens * columns);
  const std::int64_t scratch_at = aligned(delta_at + 4 * s.heads * s.tokens);
  return choose(
      stream, {.key = key,
               .bytes = aligned(scratch_at + attention_backward_scratch(type, s)),
               .areas = {{type, 0, s.tokens, queries, columns},  // dQ, dK, dV
                         {type, 2 * queries, s.tokens, keys, columns},
                         {type, 2 * (queries + keys), s.tokens, s.kv_heads * s.values(), columns}},
               .run = [=](AttentionEngine engine, std::byte* results) {
                 auto* delta = reinterpret_cast<float*>(results + delta_at);
                 return attention_backward(stream, type, s, d_o, qkv, o, lse, results, delta,
                                           results + scratch_at, engine);
               }});
}

AttentionEngine AttentionChoice::choose(Stream stream, const Trial& trial) {
  void* memory = nullptr;  // results of both, and two numbers
  AttentionEngine engine = MmaSync;
  if (cudaMallocAsync(&memory, static_cast<std::size_t>(2 * trial.bytes + 256), stream) ==
      cudaSuccess) {
    engine = tried(stream, trial, static_cast<std::byte*>(memory));
    cudaFreeAsync(memory, stream);
  } else {
    cudaGetLastError();  // clears it
    if (say_ && !std::exchange(said_no_memory_, true)) {
      say_("attention: no " + std::to_string(2 * trial.bytes + 256) +
           " bytes of GPU memory for a trial: mma.sync, perhaps the slower engine");
    }
  }
  chosen_.emplace(trial.key, engine);
  return engine;
}

AttentionEngine AttentionChoice::tried(Stream stream, const Trial& trial, std::byte* results) {
  std::byte* const other = results + trial.bytes;
  auto* const numbers = reinterpret_cast<float*>(other + trial.bytes);
  const float mma =
      best_time(stream, kRepetitions, [&] { return trial.run(MmaSync, results) == 0; });
  if (mma < 0) return MmaSync;  // the call itself will say why
  const float wgmma = best_time(stream, kRepetitions, [&] { return trial.run(Wgmma, other) == 0; });
  float distance = 0;
  bool agree = wgmma >= 0;
  for (const Area& area : trial.areas) {
    float found[2] = {INFINITY, 0};  // difference, value
    const bool compared =
        agree &&
        largest_difference(stream, area.type, area.rows, area.columns, area.stride,
                           results + area.at, other + area.at, numbers) == 0 &&
        cudaStreamSynchronize(stream) == cudaSuccess &&
        cudaMemcpy(found, numbers, sizeof found, cudaMemcpyDeviceToHost) == cudaSuccess;
    const float tolerance = area.type == Type::Float32 ? kFloatTolerance : kTolerance;
    agree = compared && found[0] <= tolerance * found[1];
    if (compared && found[0] > 0) distance = std::max(distance, found[0] / found[1]);
  }
  const AttentionEngine engine = agree && wgmma < mma ? Wgmma : MmaSync;
  if (!agree) {
    only_ = MmaSync;
    differed_ = true;
    chosen_.clear();
  }
  if (say_ && (says_all_ || !agree)) {
    const Key& key = trial.key;
    char text[240];
    const std::string values =
        key.values == key.head_dim ? "" : " and values of " + std::to_string(key.values);
    std::snprintf(text, sizeof text, "attention %s, %lld heads of %lld%s, %lld x %lld tokens: ",
                  key.backward ? "backward" : "forward", static_cast<long long>(key.heads),
                  static_cast<long long>(key.head_dim), values.c_str(),
                  static_cast<long long>(key.tokens / key.sequence),
                  static_cast<long long>(key.sequence));
    std::string said = text;
    if (wgmma < 0) {
      said += "wgmma fails; mma.sync computes all";
    } else if (!agree) {
      std::snprintf(
          text, sizeof text,
          "wgmma differs from mma.sync by %.3g of the largest value; mma.sync computes all",
          static_cast<double>(distance));
      said += text;
    } else {
      std::snprintf(text, sizeof text, "%s: wgmma %.3f ms, mma.sync %.3f ms, %.1g apart",
                    engine == Wgmma ? "wgmma" : "mma.sync", static_cast<double>(wgmma),
                    static_cast<double>(mma), static_cast<double>(distance));
      said += text;
    }
    say_(said);
  }
  return engine;
}

}  // namespace rehearse::exec::cuda
