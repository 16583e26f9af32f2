// SPDX-License-Identifier: Apache-2.0
// What the colour of an op stands for: what it does, or of which chunk, direction or micro-batch it
// is, what its time rests on, on which rank it runs, what its layers are made of, or how much
// longer it takes than in another trace. Colours are those that colour-blind eyes tell apart; idle
// time keeps its patterns.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "viz/analysis/analysis.h"
#include "viz/picture/colors.h"

namespace rehearse::viz {

enum class ColorBy : std::uint8_t {
  Kinds,
  Chunk,       // of those that share a rank, in order of their stages
  Direction,   // of a bidirectional pipeline: stages rise or fall with the position
  Microbatch,  // modulo eight
  CostLevel,   // what its predicted time rests on
  Rank,        // modulo eight
  Layer,       // the kind of layer that most of its time goes to; inside it, each layer's
  Difference,  // to the op that does the same in the other trace
};
inline constexpr std::size_t kNumColorings = 8;
inline constexpr std::array<std::string_view, kNumColorings> kColorByNames{
    "kind", "chunk", "direction", "microbatch", "cost", "rank", "layer", "difference"};

// Names of sim::CostLevel, by its numbers.
inline constexpr std::array<std::string_view, 4> kCostLevelNames{"measured", "interpolated",
                                                                 "formula", "datasheet"};

class Coloring {
 public:
  // Difference: `elsewhere` is what each op takes in the other trace [ns]; -1: it is not there.
  explicit Coloring(const Trace& trace, ColorBy by = ColorBy::Kinds,
                    std::span<const std::int64_t> elsewhere = {});
  // The ops that are 0 of `kept` become one class of their own: grey and without a label. REQUIRES:
  // as long as the trace has ops.
  void keep_only(std::span<const std::uint8_t> kept);
  // The class of ops that are not asked for: a kind that exists in files alone.
  static constexpr Kind kNotKept = kind_of(OpKind::Free);

  ColorBy by() const { return by_; }
  // A class of colour per op, for TraceIndex; empty: an op's kind is its class.
  const std::vector<Kind>& classes() const { return classes_; }
  // `kind`: a class of colour, or a cause of idle time.
  KindStyle style(Kind kind, Theme theme) const;
  // The colour of one op: by kind, later chunks of a rank are lighter, where there are none odd
  // micro-batches; else backwards are lighter than forwards.
  Color fill(OpId op, Kind kind, Theme theme) const;
  // Of a class of colour, for pictures of letters: the first of its name, or a digit.
  char letter(Kind kind) const { return kind < styles_.size() ? styles_[kind].letter : ' '; }
  // What an op is made of from its left edge to its right, by predicted time: where each stripe
  // ends, a share of the op, and its colour. Empty: the op is of one colour.
  struct Stripe {
    double end = 0;
    Color fill;
  };
  std::vector<Stripe> stripes(OpId op) const;
  // Whether a rank has several chunks, so that an op's stage tells it apart.
  bool has_chunks() const { return most_chunks_ > 1; }
  // Which of the chunks of its rank an op belongs to, in order of their stages; 0 without a stage.
  std::int32_t chunk_of(OpId op) const;
  // What lighter shades stand for, in the order of their chunks; empty: nothing that needs words.
  std::vector<KindStyle> shades(Theme theme) const;

 private:
  void add(Color color, std::string name, char letter);
  void by_direction();
  void by_layer();

  struct ClassStyle {
    Color color;
    std::string name;
    char letter = ' ';
  };
  // Layers of one kind in a row, of a class of ops.
  struct Stretch {
    Kind of = 0;  // class of colour
    std::int64_t time = 0;
  };
  const Trace* trace_;
  ColorBy by_;
  std::vector<Kind> classes_;
  std::vector<ClassStyle> styles_;
  std::vector<std::vector<Stretch>> stretches_;    // Layer: by class of ops
  std::vector<std::vector<std::int32_t>> stages_;  // of each row, ascending
  std::int32_t most_chunks_ = 1;
};

}  // namespace rehearse::viz
