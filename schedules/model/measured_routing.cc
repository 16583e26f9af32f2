// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/measured_routing.h"

#include <algorithm>
#include <numeric>

#include "schedules/base/json_reader.h"

namespace rehearse {
namespace {

constexpr std::string_view kKey = "expert_rows";

// One line of the file: what its step has in every layer, added up as factors.
class StepReader {
 public:
  StepReader(const std::string& path, const Transformer& model, MeasuredRouting& into)
      : path_(path), model_(model), into_(into) {}

  Result<> add(std::string_view text, std::int32_t line) {
    const Result<JsonValue> step = parse_json(text, path_, line);
    if (!step) return step.error();
    const JsonValue* layers = step.value().given(kKey);
    if (layers == nullptr || !layers->is(JsonKind::Array)) {
      return wrong(line, "is missing: no line of the metrics of a run with experts");
    }
    if (static_cast<std::int64_t>(layers->items.size()) != model_.layers) {
      return wrong(line, "has " + std::to_string(layers->items.size()) + " layers, the model " +
                             std::to_string(model_.layers));
    }
    for (std::int64_t layer = 0; layer < model_.layers; ++layer) {
      if (const Result<> good = add_layer(layers->items[static_cast<std::size_t>(layer)], layer);
          !good) {
        return good;
      }
    }
    return {};
  }

 private:
  Error wrong(std::int32_t line, const std::string& what) const {
    return json_error(path_, line, std::string(kKey), what);
  }

  Result<> add_layer(const JsonValue& json, std::int64_t layer) {
    const std::string name = "layer " + std::to_string(layer);
    if (static_cast<std::int64_t>(json.items.size()) != model_.experts.count) {
      return wrong(json.line, name + " has " + std::to_string(json.items.size()) +
                                  " experts, the model " + std::to_string(model_.experts.count));
    }
    rows_.clear();
    for (const JsonValue& rows : json.items) {
      if (!rows.is(JsonKind::Integer) || rows.integer < 0) {
        return wrong(json.line, name + " has what is no number of rows");
      }
      rows_.push_back(rows.integer);
    }
    const bool any = std::ranges::any_of(rows_, [](std::int64_t rows) { return rows > 0; });
    if (any != model_.has_experts(layer)) {
      return wrong(json.line,
                   name + (any ? " has rows, but no experts in the model" : " has no rows"));
    }
    for (std::size_t r = 0; r < into_.ranks.size(); ++r) {
      into_
          .factors[r * static_cast<std::size_t>(model_.layers) + static_cast<std::size_t>(layer)] +=
          busiest_over_mean(rows_, into_.ranks[r]);
    }
    return {};
  }

  const std::string& path_;
  const Transformer& model_;
  MeasuredRouting& into_;
  std::vector<std::int64_t> rows_;
};

}  // namespace

double busiest_over_mean(std::span<const std::int64_t> rows, std::int64_t ranks) {
  const std::size_t each = rows.size() / static_cast<std::size_t>(ranks);
  std::int64_t all = 0, most = 0;
  for (std::size_t first = 0; first < rows.size(); first += each) {
    const auto here = rows.subspan(first, each);
    const std::int64_t sum = std::accumulate(here.begin(), here.end(), std::int64_t{0});
    all += sum;
    most = std::max(most, sum);
  }
  return all == 0 ? 1 : static_cast<double>(most * ranks) / static_cast<double>(all);
}

std::span<const double> MeasuredRouting::layers(std::int32_t of) const {
  const std::size_t count = factors.size() / ranks.size();
  const auto at = static_cast<std::size_t>(std::ranges::find(ranks, of) - ranks.begin());
  return std::span(factors).subspan(at * count, count);
}

Result<MeasuredRouting> read_routing(const std::string& path, const Transformer& model) {
  const Result<std::string> text = read_text_file(path, kMostText);
  if (!text) return text.error();
  MeasuredRouting routing{.path = path};
  for (std::int32_t ranks = 1; ranks <= model.experts.count; ++ranks) {
    if (model.experts.count % ranks == 0) routing.ranks.push_back(ranks);
  }
  routing.factors.assign(routing.ranks.size() * static_cast<std::size_t>(model.layers), 0);
  StepReader reader(path, model, routing);
  std::int32_t steps = 0;
  for (std::string_view rest = text.value(); !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    ++steps;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      return Error{path + ':' + std::to_string(steps) + ": a blank line: every line is a step's"};
    }
    if (const Result<> good = reader.add(line, steps); !good) return good.error();
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (steps == 0) return Error{path + ": no step in it"};
  for (double& factor : routing.factors) factor /= steps;
  return routing;
}

}  // namespace rehearse
