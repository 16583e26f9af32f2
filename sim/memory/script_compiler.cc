// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/script_compiler.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace rehearse::sim {
namespace {

// The slots of names. A segment has few, and asks for one at every row.
class SlotNames {
 public:
  SlotNames() { first_.fill(-1); }

  std::size_t size() const { return names_.size(); }
  std::string_view operator[](std::size_t slot) const { return names_[slot]; }
  // The slot of a name, a new one where it has none.
  std::size_t slot(std::string_view name) {
    std::int16_t& first = first_[bucket(name)];
    for (std::int16_t s = first; s >= 0; s = next_[static_cast<std::size_t>(s)]) {
      if (names_[static_cast<std::size_t>(s)] == name) return static_cast<std::size_t>(s);
    }
    next_.push_back(first);
    first = static_cast<std::int16_t>(names_.size());
    names_.push_back(name);
    return names_.size() - 1;
  }

 private:
  static constexpr std::size_t kBuckets = 64;
  static std::size_t bucket(std::string_view name) {
    if (name.empty()) return 0;
    const auto letter = [&](std::size_t i) { return static_cast<unsigned char>(name[i]); };
    return (5 * name.size() + 3 * letter(0) + 7 * letter(name.size() / 2) +
            letter(name.size() - 1)) %
           kBuckets;
  }

  std::vector<std::string_view> names_;
  std::vector<std::int16_t> next_;  // of the same bucket; -1: none
  std::array<std::int16_t, kBuckets> first_{};
};

// Names to slots, and which of them hold a tensor at the present row.
class Compiler {
 public:
  Compiler(const ScriptRows& script, const SizeLetters& letters, Flags flags,
           const ScriptAsked& asked)
      : script_(script),
        letters_(letters),
        flags_(flags),
        asked_(asked),
        remade_(asked.remade),
        remakes_(asked.compiled && asked.remade == Remade::Nothing) {
    for (const char* name : {"input", "output", "output_gradient", "input_gradient"}) slot(name);
  }

  SegmentProgram compile(Extent extent) {
    run_forward(program_.forward, Run::First);
    end_forward();
    std::vector<bool> left;
    if (extent == Extent::Apart) left = alive_;
    if (extent != Extent::Forward) run_backward();
    if (extent == Extent::Apart) {
      alive_ = std::move(left);
      alive_.resize(names_.size(), false);
      run_again();
      run_apart();
    }
    program_.slots = static_cast<std::int16_t>(names_.size());
    return std::move(program_);
  }

 private:
  enum class Run { First, Again, DroppedAlone };

  void run_backward() {
    if (remade_ == Remade::Everything) run_forward(program_.backward, Run::Again);
    for (const ScriptRow* at : script_.backward) {
      const ScriptRow& row = *at;
      if (!row.condition.holds(flags_)) continue;
      if (row.act != ScriptRow::Act::Recompute) {
        run_backward(program_.backward, row);
      } else if (remade_ == Remade::Dropped) {
        run_forward(program_.backward, row.whole_forward ? Run::Again : Run::DroppedAlone);
      }
    }
    end_backward(program_.backward);
  }
  // Kinds are spelled out before (with_kinds).
  void run_backward(std::vector<ScriptStep>& steps, const ScriptRow& row) {
    if (row.act == ScriptRow::Act::Allocate) {
      allocate(steps, row, /*kept=*/row.tensor == "input_gradient");
    } else if (row.act == ScriptRow::Act::Free) {
      remake(steps, row.tensor);
      free(steps, row.tensor, row.weight_phase);
    }
  }

  static bool makes_again(const ScriptRow& row) {
    return row.act == ScriptRow::Act::Allocate &&
           (row.again || (row.condition.all & kMakesAgain) != 0);
  }
  // What an R makes: what the backward would have made at its begin or where it needs it. Of a
  // profile's rows that stand in the backward, a tensor that the next row frees is a temporary.
  void run_again() {
    std::vector<ScriptStep>& steps = program_.again;
    if (remade_ == Remade::Everything) run_forward(steps, Run::Again);
    const ScriptRow* made = nullptr;
    for (const ScriptRow* at : script_.backward) {
      if (at->act != ScriptRow::Act::Recompute || !at->condition.holds(flags_)) continue;
      if (remade_ != Remade::Dropped) break;
      run_forward(steps, at->whole_forward ? Run::Again : Run::DroppedAlone);
    }
    for (const ScriptRow* at : script_.backward) {
      if (!at->condition.holds(flags_)) continue;
      if (makes_again(*at)) {
        allocate(steps, *at, true);
      } else if (made != nullptr && at->act == ScriptRow::Act::Free && at->tensor == made->tensor) {
        free(steps, at->tensor);
      }
      made = makes_again(*at) && !at->again ? at : nullptr;  // a kind's lives to its backward
    }
    for (ScriptStep& step : steps) {
      if (step.bytes > 0) step.kept = alive(step.slot);
    }
  }
  void run_apart() {
    for (const ScriptRow* at : script_.backward) {
      if (!at->condition.holds(flags_) || makes_again(*at)) continue;
      run_backward(program_.apart, *at);
    }
    end_backward(program_.apart);
  }

  std::int16_t slot(std::string_view name) {
    const std::size_t found = names_.slot(name);
    if (found == alive_.size()) {
      alive_.push_back(false);
      keep_.push_back(Keep::No);
      bytes_.push_back(0);
    }
    return static_cast<std::int16_t>(found);
  }
  bool alive(std::int16_t s) const { return alive_[static_cast<std::size_t>(s)]; }

  void allocate(std::vector<ScriptStep>& steps, const ScriptRow& row, bool kept) {
    const std::int64_t bytes = letters_.bytes(row.size);
    kind_ = asked_.streams != 0 && has(row.size, SizeLetter::Streams) ? asked_.streams : row.block;
    const bool of_loss = asked_.role != ReplicaRole::Alike && is_of_loss(row.size);
    if (!of_loss) return allocate(steps, row.tensor, bytes, kept);
    const bool forward = &steps == &program_.forward;
    const bool outputs = forward && has(row.size, SizeLetter::Vocabulary) && !outputs_;
    const std::int64_t own = letters_.bytes(kOutputs);
    if (outputs) allocate(steps, "outputs", own, false);  // the replica's, which the root gathers
    outputs_ |= outputs;
    if (asked_.role == ReplicaRole::Root) {
      allocate(steps, row.tensor, asked_.replicas * bytes, kept);
    } else if (!forward && has(row.size, SizeLetter::Element)) {
      allocate(steps, row.tensor, own, kept);  // the gradients that come back
    }
    if (outputs) free(steps, "outputs");
  }
  void allocate(std::vector<ScriptStep>& steps, std::string_view tensor, std::int64_t bytes,
                bool kept) {
    const std::int16_t s = slot(tensor);
    if (alive(s) || bytes <= 0) return;
    alive_[static_cast<std::size_t>(s)] = true;
    bytes_[static_cast<std::size_t>(s)] = bytes;
    steps.push_back({.bytes = bytes, .slot = s, .kept = kept, .kind = kind_});
  }
  // A head's tensors of the loss are of tokens and words, not of the hidden columns.
  static bool has(const SizeFormula& size, SizeLetter letter) {
    return std::ranges::any_of(size, [&](const SizeTerm& term) {
      return term.power[static_cast<std::size_t>(letter)] > 0;
    });
  }
  static bool is_of_loss(const SizeFormula& size) {
    return has(size, SizeLetter::Tokens) && !has(size, SizeLetter::Hidden);
  }
  // A cheap tensor of a compiled program, which its last use makes again.
  void remake(std::vector<ScriptStep>& steps, std::string_view name) {
    const std::int16_t s = slot(name);
    const auto at = static_cast<std::size_t>(s);
    if (!remakes_ || keep_[at] != Keep::Cheap || alive(s) || bytes_[at] == 0) return;
    alive_[at] = true;
    steps.push_back({.bytes = bytes_[at], .slot = s, .kind = kind_});
  }
  void free(std::vector<ScriptStep>& steps, std::string_view name, bool weight_phase = false) {
    const std::int16_t s = slot(name);
    const bool handed_over = s == kOutputGradientSlot;  // the neighbour has allocated it
    if (!alive(s) && !handed_over) return;
    alive_[static_cast<std::size_t>(s)] = false;
    steps.push_back({.bytes = 0, .slot = s, .weight_phase = weight_phase});
  }

  bool survives(Keep keep) const {
    switch (remade_) {
      case Remade::Nothing:
        return keep == Keep::Always || keep == Keep::Drop || keep == Keep::Streams ||
               (keep == Keep::Cheap && !remakes_);
      case Remade::Dropped:
        return keep == Keep::Always || keep == Keep::Saved || keep == Keep::Streams;
      case Remade::Everything:
        return false;
    }
    return false;
  }

  bool needed_again(Keep keep) const {
    return keep == Keep::Always || keep == Keep::Drop || keep == Keep::Cheap ||
           keep == Keep::Streams || (keep == Keep::Saved && remade_ == Remade::Dropped);
  }

  // The forward, or its repetition inside the backward: then what is still there is not made again,
  // the output is not handed on, and nothing outlives the op.
  void run_forward(std::vector<ScriptStep>& steps, Run run) {
    const bool again = run != Run::First;
    for (const ScriptRow* at : script_.forward) {
      const ScriptRow& row = *at;
      if (!row.condition.holds(flags_)) continue;
      const bool dropped = row.keep == Keep::Drop || row.keep == Keep::Cheap;
      if (run == Run::DroppedAlone && !dropped) continue;
      if (row.act == ScriptRow::Act::Allocate) {
        if (again && row.tensor == "output") continue;
        const bool kept = !again && (row.tensor == "output" || survives(row.keep));
        keep_[static_cast<std::size_t>(slot(row.tensor))] = row.keep;
        const std::size_t before = steps.size();
        allocate(steps, row, kept);
        if (again || steps.size() == before) continue;
        if (row.tensor == "output") program_.output = steps.back().bytes;
        if (asked_.notes_streams && row.keep == Keep::Streams)
          program_.streams.push_back(steps.back());
      } else if (row.act == ScriptRow::Act::Free) {
        // The last use in the forward: autograd (or the repetition) may still hold the tensor.
        const Keep keep = keep_[static_cast<std::size_t>(slot(row.tensor))];
        if (again ? needed_again(keep) : survives(keep)) continue;
        free(steps, row.tensor);
      }
    }
    if (!again) return;
    for (std::size_t s = 0; s < names_.size(); ++s) {  // temporaries without a row of their own
      if (alive_[s] && keep_[s] == Keep::No && s > kInputGradientSlot) free(steps, names_[s]);
    }
  }

  void end_forward() {
    for (std::size_t s = kInputGradientSlot + 1; s < names_.size(); ++s) {
      if (alive_[s] && !survives(keep_[s])) free(program_.forward, names_[s]);
    }
    alive_[kOutputSlot] = false;  // the next segment's
  }

  // Whatever a script forgot to free: the op ends, and autograd has dropped it.
  void end_backward(std::vector<ScriptStep>& steps) {
    for (std::size_t s = kInputGradientSlot + 1; s < names_.size(); ++s) {
      if (alive_[s]) free(steps, names_[s], /*weight_phase=*/true);
    }
  }

  // Logits: e n V.
  inline static const SizeFormula kOutputs = [] {
    SizeTerm term;
    for (const SizeLetter letter :
         {SizeLetter::Element, SizeLetter::Tokens, SizeLetter::Vocabulary}) {
      term.power[static_cast<std::size_t>(letter)] = 1;
    }
    return SizeFormula{term};
  }();

  const ScriptRows& script_;
  const SizeLetters& letters_;
  Flags flags_;
  const ScriptAsked& asked_;
  std::uint8_t kind_ = 0;  // of the row
  bool outputs_ = false;   // have been there
  const Remade remade_;
  const bool remakes_;  // cheap tensors in the backward, with nothing recomputed
  SegmentProgram program_;
  SlotNames names_;
  std::vector<bool> alive_;
  std::vector<Keep> keep_;
  std::vector<std::int64_t> bytes_;  // when last allocated
};

}  // namespace

SegmentProgram compile_script(const ScriptRows& script, const SizeLetters& letters, Flags flags,
                              const ScriptAsked& asked) {
  return Compiler(script, letters, flags, asked).compile(asked.extent);
}

}  // namespace rehearse::sim
