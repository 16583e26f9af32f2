// SPDX-License-Identifier: Apache-2.0
// The file of a layer kind: what it may say, how it is read, and the kinds that were read.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "schedules/base/files.h"
#include "schedules/base/json_reader.h"
#include "schedules/model/kinds/layer_kind.h"

namespace rehearse {
namespace {

// --- What a file may say

constexpr KeySpec text(std::string_view name, std::string_view about, bool required = false) {
  return {.name = name, .types = kString, .required = required, .about = about};
}
constexpr KeySpec word(std::string_view name, std::span<const std::string_view> choices,
                       std::string_view about, bool required = false) {
  return {.name = name, .types = kString, .choices = choices, .required = required, .about = about};
}
constexpr KeySpec list(std::string_view name, const KeyTable& items, std::string_view about) {
  return {.name = name, .types = kArray, .items = &items, .item_types = kObject, .about = about};
}
constexpr KeySpec texts(std::string_view name, std::string_view about) {
  return {.name = name, .types = kArray, .item_types = kString, .about = about};
}
constexpr KeySpec expression(std::string_view name, std::string_view about) {
  constexpr double kMost = 0x1p53;
  return {.name = name, .types = kString | kInteger, .min = 0, .max = kMost, .about = about};
}

constexpr std::array<std::string_view, 5> kCuts{"none", "rows", "columns", "experts", "vocabulary"};
constexpr std::array<std::string_view, 4> kUses{"product", "norm", "vector", "lookup"};
constexpr std::array<std::string_view, 4> kReads{"stream", "core", "latent", "middle"};
constexpr std::array<std::string_view, 2> kTypes{"fp32", "int64"};
constexpr std::array kTensorKeys{
    text("name", "in files, behind the name of its module", true),
    KeySpec{.name = "shape", .types = kArray, .required = true, .about = "whole, rows first"},
    KeySpec{.name = "blocks",
            .types = kArray,
            .about = "of the first dimension, each cut for itself; left out: one"},
    word("cut", kCuts, "how the ranks of tp divide it", true),
    word("use", kUses, "what it is for", true),
    word("reads", kReads, "what a product multiplies"),
    expression("bias", "whether a bias goes with it"),
    expression("when", "whether it is there"),
    word("dtype", kTypes, "where it is not the model's"),
    KeySpec{.name = "decays", .types = kBool, .about = "takes weight decay"},
    KeySpec{.name = "muon", .types = kBool, .about = "a product that Muon orthogonalizes"},
    KeySpec{.name = "parameter", .types = kBool, .about = "no .weight behind its name"},
    KeySpec{.name = "shares_heads", .types = kBool, .about = "ranks beyond its heads share them"},
    expression("copies", "of routed experts"),
    text("fused_with", "another tensor, whose product frameworks run with this one's"),
    text("says", "for people"),
};
constexpr KeyTable kTensorTable{.title = "tensor", .keys = kTensorKeys};

constexpr std::array<std::string_view, 5> kOps{"product", "product_gradients", "kernel", "exchange",
                                               "attention"};
constexpr std::array<std::string_view, 2> kExchanges{"all_to_all", "all_gather"};
constexpr std::array<std::string_view, 4> kClasses{"elementwise", "norm", "scan", "conv"};
constexpr std::array<std::string_view, 4> kCollectives{"none", "gather_sequence",
                                                       "scatter_sequence", "reduce"};
constexpr std::array<std::string_view, 1> kAxes{"cp"};
constexpr std::array<std::string_view, 2> kTokens{"all", "local"};
constexpr std::array<std::string_view, 1> kInputs{"detached"};
constexpr std::array<std::string_view, 3> kAgainWords{"delta_norm_out", "latent_up",
                                                      "residual_streams"};
constexpr std::array kNodeKeys{
    word("op", kOps, "what it is", true),
    text("tensor", "of a product"),
    word("collective", kCollectives, "over tp, around a product"),
    word("tokens", kTokens, "that a product multiplies; left out: all that the rank's block sees"),
    word("inputs", kInputs, "of product_gradients: no gradient goes further than the tensor"),
    text("name", "of a kernel, for people"),
    word("class", kClasses, "what a kernel costs by"),
    expression("when", "whether it runs"),
    expression("flops", "of a kernel"),
    expression("bytes", "that a kernel moves; of an exchange what a rank holds before it"),
    expression("serial", "steps of a scan that follow one another"),
    KeySpec{.name = "kernels", .types = kInteger, .min = 1, .max = 1000, .about = "launches"},
    KeySpec{.name = "rate",
            .types = kNumber,
            .min = 0,
            .max = 10,
            .above_min = true,
            .sourced = true,
            .about = "of the architecture's rate of scans"},
    expression("tiles", "of attention: blocks of 128 queries of a head"),
    word("axis", kAxes, "of an exchange"),
    word("as", kExchanges, "of an exchange; left out: all_to_all"),
    KeySpec{.name = "calls", .types = kInteger, .min = 1, .max = 100, .about = "of an exchange"},
    word("again", kAgainWords, "the word of plan.recompute that has a backward run it again"),
    text("says", "for people"),
};
constexpr KeyTable kNodeTable{.title = "node", .keys = kNodeKeys};

constexpr std::array<std::string_view, 3> kRowCuts{"none", "tp", "sp"};
constexpr std::array kRowKeys{
    text("name", "for people", true),
    expression("bytes", "per token"),
    word("cut", kRowCuts, "what divides it", true),
    KeySpec{.name = "dropped_by",
            .types = kArray,
            .choices = kAgainWords,
            .item_types = kString,
            .about = "words of plan.recompute"},
    text("says", "for people"),
};
constexpr KeyTable kRowTable{.title = "row", .keys = kRowKeys};

constexpr std::array kWorkspaceKeys{
    expression("forward_bytes", "while the forward's kernels run"),
    expression("backward_bytes", "while the backward's do"),
};
constexpr KeyTable kWorkspaceTable{.title = "workspace", .keys = kWorkspaceKeys};

constexpr std::array<std::string_view, 4> kBuiltIns{"attention", "latent_attention", "mlp",
                                                    "experts"};
constexpr std::array<std::string_view, 1> kVersions{"layer/1"};
constexpr std::array kFileKeys{
    text("$schema", "for editors"),
    word("schema", kVersions, "version of this format", true),
    text("kind", "its name, as mappings write it", true),
    text("says", "for people"),
    texts("sources", "for people"),
    word("built_in", kBuiltIns,
         "code of ours has what it runs and keeps; the file has its tensors"),
    KeySpec{.name = "symbols",
            .types = kObject,
            .required = true,
            .about = "inputs, each with a word on it; a mapping gives their values"},
    KeySpec{.name = "otherwise",
            .types = kObject,
            .about = "values of symbols that a mapping leaves out"},
    KeySpec{.name = "let", .types = kObject, .about = "numbers that follow, in order"},
    texts("needs", "conditions on the plan"),
    list("tensors", kTensorTable, "its parameters"),
    list("forward", kNodeTable, "what a forward runs, in order"),
    list("backward", kNodeTable, "what a backward runs, in order"),
    list("saved", kRowTable, "what the forward keeps for the backward"),
    KeySpec{.name = "recompute",
            .types = kObject,
            .about = "words of plan.recompute, and what runs again, for people"},
    KeySpec{.name = "state", .types = kObject, .about = "of generation, for people"},
    KeySpec{.name = "workspace",
            .types = kObject,
            .members = &kWorkspaceTable,
            .about = "bytes that live while kernels run"},
};
constexpr KeyTable kFile{.title = "Layer: one kind of block, as data", .keys = kFileKeys};

// --- The reader

template <std::size_t N>
std::size_t place_of(const std::array<std::string_view, N>& words, std::string_view word) {
  return static_cast<std::size_t>(std::ranges::find(words, word) - words.begin());
}

std::string text_of(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.given(key);
  return value == nullptr ? std::string() : value->text;
}
bool flag_of(const JsonValue& object, std::string_view key, bool otherwise) {
  const JsonValue* value = object.given(key);
  return value == nullptr ? otherwise : value->boolean;
}

class Reader {
 public:
  Reader(const JsonValue& document, JsonReport& report) : document_(document), report_(report) {}

  std::unique_ptr<LayerKind> read() {
    auto kind = std::make_unique<LayerKind>();
    kind_ = kind.get();
    kind->path = report_.path();
    kind->name = text_of(document_, "kind");
    const std::string built_in = text_of(document_, "built_in");
    if (!built_in.empty()) {
      kind->built_in = static_cast<BuiltIn>(place_of(kBuiltIns, built_in) + 1);
    }
    symbols();
    for (const JsonValue& need : items("needs")) {
      kind->needs.push_back(read(need, "needs"));
    }
    for (const JsonValue& tensor : items("tensors")) kind->tensors.push_back(read_tensor(tensor));
    fuse();
    for (const JsonValue& node : items("forward")) kind->forward.push_back(read_node(node));
    for (const JsonValue& node : items("backward")) kind->backward.push_back(read_node(node));
    for (const JsonValue& row : items("saved")) kind->saved.push_back(read_row(row));
    if (const JsonValue* workspace = document_.given("workspace")) {
      kind->forward_workspace = numeric(*workspace, "forward_bytes", "workspace");
      kind->backward_workspace = numeric(*workspace, "backward_bytes", "workspace");
    }
    return kind;
  }

 private:
  const std::vector<JsonValue>& items(std::string_view key) const {
    static const std::vector<JsonValue> kNone;
    const JsonValue* list = document_.given(key);
    return list == nullptr ? kNone : list->items;
  }

  Expression read(const JsonValue& value, const std::string& key) {
    const std::string text =
        value.is(JsonKind::Integer) ? std::to_string(value.integer) : value.text;
    const Result<Expression> read = Expression::read(text, names_);
    if (read) return read.value();
    report_.fail(value.line, key, read.error().message);
    return {};
  }
  Expression given(const JsonValue& object, std::string_view key, const std::string& of) {
    const JsonValue* value = object.given(key);
    return value == nullptr ? Expression() : read(*value, join_key(of, key));
  }
  // An expression whose value is counted in doubles.
  Expression numeric(const JsonValue& object, std::string_view key, const std::string& of) {
    Expression read = given(object, key, of);
    if (!read.is_numeric()) {
      report_.fail(object.line, join_key(of, key), json_excerpt(read.text()) + " is no number");
    }
    return read;
  }

  void symbols() {
    const JsonValue& symbols = *document_.given("symbols");
    for (const JsonMember& member : symbols.members) kind_->symbols.push_back(member.key);
    names_ = kind_->symbols;
    kind_->otherwise.resize(kind_->symbols.size());
    if (const JsonValue* otherwise = document_.given("otherwise")) {
      for (const JsonMember& member : otherwise->members) {
        const std::int32_t at = kind_->symbol(member.key);
        if (at < 0) {
          report_.fail(member.line, "otherwise." + member.key, "is no symbol");
          continue;
        }
        kind_->otherwise[static_cast<std::size_t>(at)] =
            read(member.value, "otherwise." + member.key);
      }
    }
    // A `let` may name those before it; the plan's numbers stand behind them all.
    const JsonValue* let = document_.given("let");
    const std::size_t count = let == nullptr ? 0 : let->members.size();
    for (std::size_t i = 0; i < count; ++i) {
      const JsonMember& member = let->members[i];
      std::vector<std::string> known = names_;
      // The slots of lets to come stay unnamed, so that the plan's have their final places.
      known.resize(kind_->symbols.size() + count);
      known.insert(known.end(), kKindPlanNames.begin(), kKindPlanNames.end());
      std::swap(known, names_);
      kind_->let.push_back(read(member.value, "let." + member.key));
      std::swap(known, names_);
      kind_->lets.push_back(member.key);
      names_.push_back(member.key);
    }
    names_.insert(names_.end(), kKindPlanNames.begin(), kKindPlanNames.end());
  }

  KindTensor read_tensor(const JsonValue& value) {
    KindTensor tensor;
    tensor.name = text_of(value, "name");
    const std::string at = "tensors." + tensor.name;
    tensor.parameter = flag_of(value, "parameter", false);
    tensor.weight_name = tensor.name + (tensor.parameter ? "" : ".weight");
    tensor.bias_name = tensor.name + ".bias";
    for (const JsonValue& size : value.given("shape")->items) {
      tensor.shape.push_back(read(size, at + ".shape"));
    }
    if (const JsonValue* blocks = value.given("blocks")) {
      for (const JsonValue& block : blocks->items) {
        tensor.blocks.push_back(read(block, at + ".blocks"));
      }
    }
    constexpr std::size_t kMostBlocks = std::tuple_size_v<decltype(ModelPart::blocks)>;
    if (tensor.shape.empty() || tensor.blocks.size() > kMostBlocks) {
      report_.fail(value.line, at,
                   "has no shape, or more than " + std::to_string(kMostBlocks) + " blocks");
    }
    switch (place_of(kCuts, text_of(value, "cut"))) {
      case 1:
        tensor.cut = Cut::Rows;
        break;
      case 2:
        tensor.cut = Cut::Columns;
        break;
      case 4:
        tensor.cut = Cut::Vocabulary;
        break;
      default:
        break;
    }
    constexpr std::array kPartUses{PartUse::Product, PartUse::Norm, PartUse::Vector,
                                   PartUse::Lookup};
    tensor.use = kPartUses[place_of(kUses, text_of(value, "use"))];
    tensor.when = given(value, "when", at);
    tensor.bias = given(value, "bias", at);
    tensor.muon = flag_of(value, "muon", true);
    return tensor;
  }

  void fuse() {
    for (const JsonValue& value : items("tensors")) {
      const JsonValue* with = value.given("fused_with");
      if (with == nullptr) continue;
      const auto found = std::ranges::find(kind_->tensors, with->text, &KindTensor::name);
      if (found == kind_->tensors.end()) {
        report_.fail(with->line, "tensors.fused_with", json_excerpt(with->text) + " is no tensor");
        continue;
      }
      std::ranges::find(kind_->tensors, text_of(value, "name"), &KindTensor::name)->fused_with =
          static_cast<std::int32_t>(found - kind_->tensors.begin());
    }
  }

  KindNode read_node(const JsonValue& value) {
    KindNode node;
    node.op = static_cast<KindNode::Op>(place_of(kOps, text_of(value, "op")));
    const bool product =
        node.op == KindNode::Op::Product || node.op == KindNode::Op::ProductGradients;
    node.name = text_of(value, product ? "tensor" : "name");
    if (node.op == KindNode::Op::Exchange) {
      node.gathers = text_of(value, "as") == kExchanges[1];
      node.name = node.gathers ? "all_gather cp" : "all_to_all cp";
    }
    const std::string at = "nodes." + node.name;
    if (product) {
      const auto found = std::ranges::find(kind_->tensors, node.name, &KindTensor::name);
      if (found == kind_->tensors.end() || found->use != PartUse::Product) {
        report_.fail(value.line, at, "is no tensor whose use is product");
        return node;
      }
      node.tensor = static_cast<std::int32_t>(found - kind_->tensors.begin());
      node.name = "gemm " + node.name;
    }
    const std::string collective = text_of(value, "collective");
    if (!collective.empty()) {
      node.collective = static_cast<KindNode::Collective>(place_of(kCollectives, collective));
    }
    node.local = text_of(value, "tokens") == kTokens[1];
    node.detached = !text_of(value, "inputs").empty();
    node.again = again_of(text_of(value, "again"));
    const std::string of = text_of(value, "class");
    if (!of.empty()) node.kernel_class = static_cast<KindNode::Class>(place_of(kClasses, of));
    if (node.op == KindNode::Op::Kernel && (of.empty() || value.given("bytes") == nullptr)) {
      report_.fail(value.line, at, "a kernel needs a class and bytes");
    }
    node.when = numeric(value, "when", at);
    node.flops = numeric(value, "flops", at);
    node.bytes = numeric(value, "bytes", at);
    node.serial = numeric(value, "serial", at);
    node.tiles = numeric(value, "tiles", at);
    for (const std::string_view key : {"kernels", "calls"}) {
      if (const JsonValue* count = value.given(key)) {
        node.kernels = static_cast<std::int32_t>(count->integer);
      }
    }
    if (const JsonValue* rate = value.given("rate")) node.rate = rate->number;
    return node;
  }

  static KindAgain again_of(std::string_view word) {
    return word.empty() ? KindAgain::None : static_cast<KindAgain>(place_of(kAgainWords, word) + 1);
  }

  KindRow read_row(const JsonValue& value) {
    KindRow row;
    row.name = text_of(value, "name");
    row.bytes = numeric(value, "bytes", "saved." + row.name);
    row.cut = static_cast<KindRow::Cut>(place_of(kRowCuts, text_of(value, "cut")));
    if (const JsonValue* words = value.given("dropped_by"); words && !words->items.empty()) {
      row.dropped_by = again_of(words->items.front().text);
    }
    return row;
  }

  const JsonValue& document_;
  JsonReport& report_;
  LayerKind* kind_ = nullptr;
  std::vector<std::string> names_;
};

// Kinds that were read, which stay: bound kinds, parts and nodes point into them.
struct Registry {
  std::mutex mutex;
  std::map<std::string, const LayerKind*> shipped;
  std::vector<std::unique_ptr<const LayerKind>> all;
};
Registry& registry() {
  static Registry made;
  return made;
}

}  // namespace

const KeyTable& layer_kind_key_table() {
  return kFile;
}

Result<const LayerKind*> parse_layer_kind(const JsonValue& document, const std::string& path) {
  JsonReport report(path);
  JsonValue bare = document;
  drop_sources(bare);
  check_keys(bare, kFile, "", report);
  if (!report.ok()) return report.error();
  std::unique_ptr<const LayerKind> kind = Reader(bare, report).read();
  if (!report.ok()) return report.error();
  const LayerKind* made = kind.get();
  const std::scoped_lock lock(registry().mutex);
  registry().all.push_back(std::move(kind));
  return made;
}

Result<const LayerKind*> layer_kind(const std::string& name) {
  {
    const std::scoped_lock lock(registry().mutex);
    const auto found = registry().shipped.find(name);
    if (found != registry().shipped.end()) return found->second;
  }
  const std::string path = shipped_directory() + "/layers/" + name + ".json";
  const Result<JsonValue> document = read_json(path);
  if (!document) return document.error();
  const Result<const LayerKind*> kind = parse_layer_kind(document.value(), path);
  if (!kind) return kind.error();
  const std::scoped_lock lock(registry().mutex);
  return registry().shipped.try_emplace(name, kind.value()).first->second;
}

}  // namespace rehearse
