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
// How far an engine may be from mma.sync, as a share of the largest value. Either may be off by
// half: P and dS are rounded to 16 bits, the result once more (the kernels' tests have the same
// bound); lse is fp32.
constexpr float kTolerance = 2e-2F, kFloatTolerance = 1e-4F;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

constexpr const char* name_of(AttentionEngine engine) {
  return engine == Cudnn ? "cudnn" : engine == Wgmma ? "wgmma" : "mma.sync";
}

bool is_captured(Stream stream) {
  cudaStreamCaptureStatus status{};
  return cudaStreamIsCapturing(stream, &status) != cudaSuccess ||
         status != cudaStreamCaptureStatusNone;
}

// "attention BACKWARD tokens sequence heads kv_heads head_dim values window PART", as a line's key.
constexpr std::string_view kLine = "attention ";
constexpr std::string_view kWgmmaDiffered = "attention wgmma differed=",
                           kCudnnDiffered = "attention cudnn differed=";

}  // namespace

AttentionChoice::AttentionChoice(bool has_wgmma, std::string_view asked, Say say,
                                 CudnnAttention* cudnn)
    : has_wgmma_(has_wgmma),
      cudnn_(cudnn),
      may_choose_(asked.empty() || asked == "say" || asked == "ours"),
      asked_(asked == "cudnn"   ? Cudnn
             : asked == "wgmma" ? Wgmma
                                : MmaSync),
      says_all_(asked == "say"),
      say_(std::move(say)) {}

AttentionChoice::Key AttentionChoice::key_of(bool backward, const AttentionShape& s, bool part) {
  return {backward,   s.tokens,   s.sequence,    s.heads, s.kv_heads,
          s.head_dim, s.values(), s.form.window, part};
}

bool AttentionChoice::wgmma_computes(Type type, const AttentionShape& s) const {
  return has_wgmma_ && !wgmma_differed_ && on_tensor_cores(type, s);
}
bool AttentionChoice::cudnn_computes(Type type, const AttentionShape& s, bool part) const {
  return cudnn_ != nullptr && !cudnn_differed_ && !part && CudnnAttention::takes(type, s);
}

std::string AttentionChoice::choices() const {
  std::string lines;
  if (wgmma_differed_) lines.append(kWgmmaDiffered).append("1\n");
  if (cudnn_differed_) lines.append(kCudnnDiffered).append("1\n");
  for (const auto& [k, engine] : chosen_) {
    lines += kLine;
    for (const std::int64_t number :
         {std::int64_t{k.backward}, k.tokens, k.sequence, k.heads, k.kv_heads, k.head_dim, k.values,
          k.window, std::int64_t{k.part}}) {
      lines += std::to_string(number) + ' ';
    }
    lines.back() = '=';
    lines += std::to_string(static_cast<int>(engine)) + '\n';
  }
  return lines;
}

AttentionEngine AttentionChoice::fastest_of_ours(const Key& key) const {
  const auto found = of_ours_.find(key);
  const bool wgmma = found != of_ours_.end() && found->second == Wgmma && !wgmma_differed_;
  return wgmma ? Wgmma : MmaSync;
}

// An engine whose results, here or elsewhere, were not those of mma.sync.
void AttentionChoice::leave_out(AttentionEngine engine) {
  (engine == Wgmma ? wgmma_differed_ : cudnn_differed_) = true;
  for (auto& [key, chosen] : chosen_) {
    if (chosen == engine) chosen = fastest_of_ours(key);
  }
}

void AttentionChoice::leave_out_cudnn(const std::string& why) {
  leave_out(Cudnn);
  if (say_) say_("attention: cudnn is left out: " + why);
}

void AttentionChoice::take(Type type, const std::string& line) {
  if (!may_choose_ || !line.starts_with(kLine)) return;
  if (line.starts_with(kWgmmaDiffered)) return leave_out(Wgmma);
  if (line.starts_with(kCudnnDiffered)) return leave_out(Cudnn);
  std::istringstream in(line.substr(kLine.size()));
  Key k;
  int number = 0;
  char equals = 0;
  in >> k.backward >> k.tokens >> k.sequence >> k.heads >> k.kv_heads >> k.head_dim >> k.values >>
      k.window >> k.part >> equals >> number;
  if (in.fail() || equals != '=' || number < 0 || number > 2) return;
  auto engine = static_cast<AttentionEngine>(number);
  if (engine == Wgmma && (!has_wgmma_ || wgmma_differed_)) engine = MmaSync;
  if (engine == Cudnn) {
    Trial trial;
    trial.key = k;
    trial.type = type;
    trial.shape = {.tokens = k.tokens,
                   .sequence = k.sequence,
                   .heads = k.heads,
                   .kv_heads = k.kv_heads,
                   .head_dim = k.head_dim,
                   .value_dim = k.values};
    trial.shape.form.window = k.window;
    if (!cudnn_computes(type, trial.shape, k.part) || prepare(trial) < 0)
      engine = fastest_of_ours(k);
  }
  chosen_.insert_or_assign(k, engine);
}

AttentionEngine AttentionChoice::forward(Stream stream, Type type, const AttentionShape& s,
                                         const void* qkv, bool part) {
  const std::int64_t wide = s.heads * s.values(), lse_at = aligned(2 * s.tokens * wide);
  return engine(stream,
                {.key = key_of(false, s, part),
                 .type = type,
                 .shape = s,
                 .bytes = aligned(lse_at + 4 * s.heads * s.tokens),
                 .areas = {{type, 0, s.tokens, wide, wide},
                           {Type::Float32, lse_at, s.heads, s.tokens, s.tokens}},
                 .run = [=, this](AttentionEngine engine, std::byte* results, void* scratch) {
                   auto* lse = reinterpret_cast<float*>(results + lse_at);
                   if (engine == Cudnn)
                     return cudnn_->forward(stream, type, s, qkv, results, lse, scratch);
                   return attention(stream, type, s, qkv, results, lse, engine);
                 }});
}

AttentionEngine AttentionChoice::backward(Stream stream, Type type, const AttentionShape& s,
                                          const void* d_o, const void* qkv, const void* o,
                                          const float* lse, bool part) {
  const std::int64_t queries = s.heads * s.head_dim, keys = s.kv_heads * s.head_dim;
  const std::int64_t columns = s.columns(), delta_at = aligned(2 * s.tokens * columns);
  const std::int64_t scratch_at = aligned(delta_at + 4 * s.heads * s.tokens);
  return engine(
      stream, {.key = key_of(true, s, part),
               .type = type,
               .shape = s,
               .bytes = aligned(scratch_at + attention_backward_scratch(type, s)),
               .areas = {{type, 0, s.tokens, queries, columns},  // dQ, dK, dV
                         {type, 2 * queries, s.tokens, keys, columns},
                         {type, 2 * (queries + keys), s.tokens, s.kv_heads * s.values(), columns}},
               .run = [=, this](AttentionEngine engine, std::byte* results, void* scratch) {
                 auto* delta = reinterpret_cast<float*>(results + delta_at);
                 if (engine == Cudnn)
                   return cudnn_->backward(stream, type, s, d_o, qkv, o, lse, results, delta,
                                           scratch);
                 return attention_backward(stream, type, s, d_o, qkv, o, lse, results, delta,
                                           results + scratch_at, engine);
               }});
}

AttentionEngine AttentionChoice::engine(Stream stream, const Trial& trial) {
  if (const auto found = chosen_.find(trial.key); found != chosen_.end()) return found->second;
  if (!may_choose_ && asked_ != Cudnn) return asked_;
  const bool cudnn = cudnn_computes(trial.type, trial.shape, trial.key.part);
  const bool wgmma = may_choose_ && wgmma_computes(trial.type, trial.shape);
  if ((!cudnn && !wgmma) || is_captured(stream)) return MmaSync;
  const AttentionEngine chosen = may_choose_           ? choose(stream, trial)
                                 : prepare(trial) >= 0 ? Cudnn
                                                       : MmaSync;
  chosen_.emplace(trial.key, chosen);
  return chosen;
}

// Bytes that cuDNN's plan wants; negative: there is none, and it was said why.
std::int64_t AttentionChoice::prepare(const Trial& trial) {
  const Result<std::int64_t> bytes = cudnn_->prepare(trial.key.backward, trial.type, trial.shape);
  if (!bytes) {
    refuse(text_of(trial.key), bytes.error().message);
    return -1;
  }
  scratch_[trial.key] = bytes.value();
  return bytes.value();
}

std::int64_t AttentionChoice::scratch() const {
  std::int64_t most = 0;
  for (const auto& [key, bytes] : scratch_) {
    const auto chosen = chosen_.find(key);
    if (chosen != chosen_.end() && chosen->second == Cudnn) most = std::max(most, bytes);
  }
  return most;
}

void AttentionChoice::refuse(const std::string& what, const std::string& why) {
  if (say_ && (said_refusals_.insert(why).second || says_all_))
    say_(what + "cudnn is left out: " + why);
}

AttentionEngine AttentionChoice::choose(Stream stream, const Trial& trial) {
  const std::int64_t scratch =
      cudnn_computes(trial.type, trial.shape, trial.key.part) ? prepare(trial) : -1;
  const std::int64_t bytes = 2 * trial.bytes + 256 + aligned(std::max(scratch, std::int64_t{0}));
  void* memory = nullptr;  // results of two, two numbers, what cuDNN wants beside
  AttentionEngine chosen = MmaSync;
  if (cudaMallocAsync(&memory, static_cast<std::size_t>(bytes), stream) == cudaSuccess) {
    chosen = tried(stream, trial, static_cast<std::byte*>(memory), scratch);
    cudaFreeAsync(memory, stream);
  } else {
    cudaGetLastError();  // clears it
    if (say_ && !std::exchange(said_no_memory_, true)) {
      say_("attention: no " + std::to_string(bytes) +
           " bytes of GPU memory for a trial: mma.sync, perhaps the slower engine");
    }
  }
  return chosen;
}

// Runs an engine, whose results stand behind those of mma.sync.
AttentionChoice::Outcome AttentionChoice::against(Stream stream, const Trial& trial,
                                                  AttentionEngine engine, std::byte* results,
                                                  void* scratch) const {
  std::byte* const other = results + trial.bytes;
  auto* const numbers = reinterpret_cast<float*>(other + trial.bytes);
  Outcome made;
  made.ms = best_time(stream, kRepetitions, [&] { return trial.run(engine, other, scratch) == 0; });
  made.agrees = made.ms >= 0;
  for (const Area& area : trial.areas) {
    float found[2] = {INFINITY, 0};  // difference, value
    const bool compared =
        made.agrees &&
        largest_difference(stream, area.type, area.rows, area.columns, area.stride,
                           results + area.at, other + area.at, numbers) == 0 &&
        cudaStreamSynchronize(stream) == cudaSuccess &&
        cudaMemcpy(found, numbers, sizeof found, cudaMemcpyDeviceToHost) == cudaSuccess;
    const float tolerance = area.type == Type::Float32 ? kFloatTolerance : kTolerance;
    made.agrees = compared && found[0] <= tolerance * found[1];
    if (compared && found[0] > 0) made.apart = std::max(made.apart, found[0] / found[1]);
  }
  return made;
}

std::string AttentionChoice::text_of(const Key& k) {
  char text[240];
  const std::string values =
      k.values == k.head_dim ? "" : " and values of " + std::to_string(k.values);
  const std::string window = k.window == 0 ? "" : ", window " + std::to_string(k.window);
  std::snprintf(text, sizeof text, "attention %s, %lld heads of %lld%s, %lld x %lld tokens%s: ",
                k.backward ? "backward" : "forward", static_cast<long long>(k.heads),
                static_cast<long long>(k.head_dim), values.c_str(),
                static_cast<long long>(k.tokens / k.sequence), static_cast<long long>(k.sequence),
                window.c_str());
  return text;
}

AttentionEngine AttentionChoice::tried(Stream stream, const Trial& trial, std::byte* results,
                                       std::int64_t scratch_bytes) {
  const float mma =
      best_time(stream, kRepetitions, [&] { return trial.run(MmaSync, results, nullptr) == 0; });
  if (mma < 0) return MmaSync;  // the call itself will say why
  const auto say = [&](const char* format, auto... values) {
    char text[200];
    std::snprintf(text, sizeof text, format, values...);
    if (say_) say_(text_of(trial.key) + text);
  };
  AttentionEngine chosen = MmaSync;
  float best = mma;
  std::string times;
  const auto note = [&](AttentionEngine engine, const Outcome& found) {
    char text[80];
    std::snprintf(text, sizeof text, "%s %.3f ms, %.1g apart, ", name_of(engine),
                  static_cast<double>(found.ms), static_cast<double>(found.apart));
    times += text;
  };
  if (wgmma_computes(trial.type, trial.shape)) {
    const Outcome wgmma = against(stream, trial, Wgmma, results, nullptr);
    if (!wgmma.agrees) {
      leave_out(Wgmma);
      if (wgmma.ms < 0) {
        say("wgmma fails; mma.sync computes all");
      } else {
        say("wgmma differs from mma.sync by %.3g of the largest value; mma.sync computes all",
            static_cast<double>(wgmma.apart));
      }
    } else {
      note(Wgmma, wgmma);
      if (wgmma.ms < best) chosen = Wgmma;
      best = std::min(best, wgmma.ms);
    }
  }
  of_ours_[trial.key] = chosen;
  if (scratch_bytes >= 0) {
    std::byte* const scratch = results + 2 * trial.bytes + 256;
    const Outcome cudnn = against(stream, trial, Cudnn, results, scratch);
    if (cudnn.ms < 0) {
      refuse(text_of(trial.key), cudnn_->why().empty() ? "it fails" : cudnn_->why());
    } else if (!cudnn.agrees) {
      leave_out(Cudnn);
      say("cudnn differs from mma.sync by %.3g of the largest value; it is left out of all",
          static_cast<double>(cudnn.apart));
    } else {
      note(Cudnn, cudnn);
      if (cudnn.ms < best) chosen = Cudnn;
    }
  }
  if (says_all_ && !times.empty())
    say("%s: %smma.sync %.3f ms", name_of(chosen), times.c_str(), static_cast<double>(mma));
  return chosen;
}

}  // namespace rehearse::exec::cuda
