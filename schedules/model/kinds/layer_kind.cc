// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/kinds/layer_kind.h"

#include <algorithm>
#include <cmath>

#include "schedules/base/json_reader.h"

namespace rehearse {
namespace {

std::vector<ExpressionValue> values_of(const std::vector<double>& slots) {
  std::vector<ExpressionValue> values;
  values.reserve(slots.size());
  for (const double slot : slots) values.push_back(ExpressionValue::of(slot));
  return values;
}

std::int64_t whole(const Expression& expression, const std::vector<double>& slots) {
  return std::llround(expression.number(slots));
}
bool holds(const Expression& expression, const std::vector<double>& slots) {
  return !expression.given() || expression.number(slots) != 0;
}

// "H % (tp*cp) == 0, with H = 6, tp = 4, cp = 1"
std::string with_values(const LayerKind& kind, const Expression& expression,
                        const std::vector<double>& slots) {
  std::string text = expression.text();
  bool first = true;
  for (const std::int32_t slot : expression.slots()) {
    const auto at = static_cast<std::size_t>(slot);
    const std::size_t symbols = kind.symbols.size(), lets = kind.lets.size();
    const std::string name = at < symbols ? kind.symbols[at]
                             : at < symbols + lets
                                 ? kind.lets[at - symbols]
                                 : std::string(kKindPlanNames[at - symbols - lets]);
    text += (first ? ", with " : ", ") + name + " = " + json_number(slots[at]);
    first = false;
  }
  return text;
}

}  // namespace

std::int32_t LayerKind::symbol(std::string_view wanted) const {
  const auto found = std::ranges::find(symbols, wanted);
  return found == symbols.end() ? -1 : static_cast<std::int32_t>(found - symbols.begin());
}

bool holds_streams(const LayerKind& kind) {
  return std::ranges::find(kind.saved, KindAgain::ResidualStreams, &KindRow::dropped_by) !=
         kind.saved.end();
}

std::vector<double> slots_of(const BoundKind& bound, const KindPlan& plan) {
  const LayerKind& kind = *bound.kind;
  std::vector<double> slots(kind.symbols.size() + kind.lets.size() + kKindPlanNames.size(), 0);
  for (std::size_t i = 0; i < bound.values.size(); ++i) {
    slots[i] = static_cast<double>(bound.values[i]);
  }
  std::size_t at = kind.symbols.size() + kind.lets.size();
  for (const std::int64_t number :
       {plan.tokens, plan.samples, plan.sequence, plan.element, plan.tensor, plan.context,
        plan.expert, plan.local, plan.index_loss}) {
    slots[at++] = static_cast<double>(number);
  }
  for (std::size_t i = 0; i < kind.let.size(); ++i) {
    slots[kind.symbols.size() + i] = kind.let[i].number(slots);
  }
  return slots;
}

Result<> check_bound(const BoundKind& bound) {
  const LayerKind& kind = *bound.kind;
  const std::vector<double> slots = slots_of(bound, {});
  const std::vector<ExpressionValue> values = values_of(slots);
  const auto fail = [&](const std::string& place, const std::string& what) {
    return Error{kind.path + ": " + place + ": " + what};
  };
  for (const KindTensor& tensor : kind.tensors) {
    if (!holds(tensor.when, slots)) continue;
    double elements = 1;
    for (const Expression& size : tensor.shape) {
      const Result<ExpressionValue> got = size.value(values);
      if (!got) return fail("tensors." + tensor.name, got.error().message);
      if (got.value().number < 1) {
        return fail("tensors." + tensor.name, with_values(kind, size, slots) + ": is below 1");
      }
      elements *= got.value().number;
    }
    if (elements > 1e15) return fail("tensors." + tensor.name, "has more than 10^15 elements");
    std::int64_t rows = 0;
    for (const Expression& block : tensor.blocks) rows += whole(block, slots);
    if (!tensor.blocks.empty() && rows != whole(tensor.shape.front(), slots)) {
      return fail("tensors." + tensor.name, "blocks make " + std::to_string(rows) + " rows, not " +
                                                std::to_string(whole(tensor.shape.front(), slots)));
    }
  }
  return {};
}

std::string unmet_need(const BoundKind& bound, const KindPlan& plan) {
  const std::vector<double> slots = slots_of(bound, plan);
  for (const Expression& need : bound.kind->needs) {
    if (!holds(need, slots)) return with_values(*bound.kind, need, slots);
  }
  return "";
}

std::vector<ModelPart> parts_of(const BoundKind& bound) {
  const std::vector<double> slots = slots_of(bound, {});
  std::vector<ModelPart> parts;
  for (const KindTensor& tensor : bound.kind->tensors) {
    if (!holds(tensor.when, slots)) continue;
    ModelPart part{.name = tensor.weight_name, .use = tensor.use, .cut = tensor.cut};
    part.out = whole(tensor.shape.front(), slots);
    for (std::size_t i = 1; i < tensor.shape.size(); ++i) part.in *= whole(tensor.shape[i], slots);
    part.blocks = {part.out};
    for (std::size_t i = 0; i < tensor.blocks.size(); ++i) {
      part.blocks[i] = whole(tensor.blocks[i], slots);
    }
    part.muon = tensor.muon;
    parts.push_back(part);
    if (!tensor.bias.given() || !holds(tensor.bias, slots)) continue;
    part.name = tensor.bias_name;
    part.use = PartUse::Vector;
    part.bias = true;
    part.in = 1;
    if (part.cut == Cut::Columns) part.cut = Cut::None;
    parts.push_back(part);
  }
  return parts;
}

bool trains_indexer(const BoundKind& bound) {
  const std::vector<double> without = slots_of(bound, {});
  const std::vector<double> with = slots_of(bound, {.index_loss = 1});
  return std::ranges::any_of(bound.kind->backward, [&](const KindNode& node) {
    return node.when.given() && node.when.number(without) == 0 && node.when.number(with) != 0;
  });
}

double forward_flops(const BoundKind& bound, const KindPlan& plan) {
  const std::vector<double> slots = slots_of(bound, plan);
  double flops = 0;
  for (const ModelPart& part : parts_of(bound)) {
    if (part.use == PartUse::Product) {
      flops += 2.0 * static_cast<double>(plan.tokens) * static_cast<double>(part.elements());
    }
  }
  for (const KindNode& node : bound.kind->forward) {
    const bool computes = node.op == KindNode::Op::Kernel || node.op == KindNode::Op::Attention;
    if (computes && node.flops.given() && holds(node.when, slots)) {
      flops += node.flops.number(slots);
    }
  }
  return flops;
}

Result<std::vector<NamedShape>> tensor_shapes(const BoundKind& bound, const SymbolWords& words) {
  const Result<> sound = check_bound(bound);
  if (!sound) return sound.error();
  const std::vector<double> slots = slots_of(bound, {});
  std::vector<NamedShape> shapes;
  for (const KindTensor& tensor : bound.kind->tensors) {
    if (!holds(tensor.when, slots)) continue;
    const auto named = [&words](std::string name) {
      for (const auto& [symbol, word] : words) {
        const std::string place = "{" + symbol + "}";
        const std::size_t at = name.find(place);
        if (at != std::string::npos) name.replace(at, place.size(), word);
      }
      return name;
    };
    NamedShape shape{.name = named(tensor.weight_name), .shape = {}};
    for (const Expression& size : tensor.shape) shape.shape.push_back(whole(size, slots));
    shapes.push_back(shape);
    if (!tensor.bias.given() || !holds(tensor.bias, slots)) continue;
    // The bias of experts has a row for each: [E, out].
    const std::size_t rows = tensor.parameter && shape.shape.size() == 3 ? 2 : 1;
    shapes.push_back(
        {.name = named(tensor.bias_name),
         .shape = {shape.shape.begin(), shape.shape.begin() + static_cast<std::ptrdiff_t>(rows)}});
  }
  return shapes;
}

}  // namespace rehearse
