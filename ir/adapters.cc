#include "ir/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "ir/param_groups.h"
#include "ir/rewrite.h"
#include "ir/schema.h"

namespace meshwright::ir {
namespace {

constexpr int64_t kMostRank = 4096;

// How a product uses a weight: its labels, and the weight's dims that are summed over and kept.
struct Product {
  std::string input;   // labels of the other operand
  std::string weight;  // of the weight, in its dims' order
  std::string result;
  std::vector<size_t> summed;
  std::vector<size_t> kept;
};

bool HasLabel(const std::string& labels, char label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

// How `operand` of the einsum is used; nothing where it is no matrix of a product.
std::optional<Product> ProductOf(const Node& einsum, size_t operand) {
  const std::string text = einsum.attrs.Str("equation");
  const size_t comma = text.find(',');
  const size_t arrow = text.find("->");
  MW_CHECK(comma < arrow && arrow != std::string::npos) << "equation " << text;
  const std::string labels[] = {text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1)};
  Product product{labels[1 - operand], labels[operand], text.substr(arrow + 2), {}, {}};
  for (size_t d = 0; d < product.weight.size(); ++d) {
    const bool in_input = HasLabel(product.input, product.weight[d]);
    const bool in_result = HasLabel(product.result, product.weight[d]);
    if (in_input && in_result) return std::nullopt;  // a matrix per batch, as experts have
    (in_input ? product.summed : product.kept).push_back(d);
  }
  if (product.summed.empty() || product.kept.empty()) return std::nullopt;
  return product;
}

// The weight as a matrix of its file: the dims in that order, and whether inputs come first.
struct FileOrder {
  std::vector<size_t> dims;
  bool inputs_first = false;
};

// Nothing where the file's tensor is no matrix of the product's inputs and outputs.
std::optional<FileOrder> FileOrderOf(const Node& param, const Product& product) {
  FileOrder order;
  for (const int64_t dim : param.attrs.Ints("export_perm")) {
    order.dims.push_back(static_cast<size_t>(dim));
  }
  for (size_t d = 0; order.dims.size() < product.weight.size(); ++d) order.dims.push_back(d);
  const auto is_input = [&](size_t dim) {
    return std::find(product.summed.begin(), product.summed.end(), dim) != product.summed.end();
  };
  order.inputs_first = is_input(order.dims.front());
  const auto turn = std::find_if(order.dims.begin(), order.dims.end(),
                                 [&](size_t dim) { return is_input(dim) != order.inputs_first; });
  const bool whole = std::all_of(turn, order.dims.end(),
                                 [&](size_t dim) { return is_input(dim) != order.inputs_first; });
  if (!whole) return std::nullopt;
  return order;
}

char FreeLabel(const Product& product) {
  for (char label = 'a'; label <= 'z'; ++label) {
    if (!HasLabel(product.input + product.weight + product.result, label)) return label;
  }
  return 'R';
}

bool Matches(const std::string& module, const std::string& target) {
  return module == target || module.ends_with("." + target);
}

std::string FileName(const Node& param) {
  const std::string name = param.attrs.Str("export_name");
  return name.empty() ? param.attrs.Str("name") : name;
}

struct Adapter {
  ValueId a;
  ValueId b;
};

Status CheckSpec(const LoraSpec& spec) {
  if (spec.rank < 1 || spec.rank > kMostRank) {
    return InvalidArgument(
        fmt::format("LoRA: rank is {}; it must be in [1, {}]", spec.rank, kMostRank));
  }
  if (!(spec.alpha > 0) || !std::isfinite(spec.alpha)) {
    return InvalidArgument(fmt::format("LoRA: alpha is {}; it must be above 0", spec.alpha));
  }
  if (spec.dropout >= 0 && spec.dropout < 1) return OkStatus();
  return InvalidArgument(fmt::format("LoRA: dropout is {}; it must be in [0, 1)", spec.dropout));
}

// Which params get adapters, and which are trained as a whole.
class TargetFinder {
 public:
  TargetFinder(const Graph& graph, const LoraSpec& spec)
      : graph_(graph), spec_(spec), users_(graph.Users()) {}

  Status Run() {
    if (spec_.target_modules.empty()) {
      return InvalidArgument(
          fmt::format("LoRA: target_modules is empty; name modules, such as {}, or \"{}\"",
                      fmt::join(LastParts(), ", "), kAllLinear));
    }
    MW_TRY(FindTargets());
    return FindSaved();
  }

  std::set<std::string> targets;  // names of params
  std::set<std::string> saved;

 private:
  const Node& ParamOf(NodeId id) const { return graph_.node(id); }
  std::string NameOf(NodeId id) const { return ParamOf(id).attrs.Str("name"); }

  // "" where the param can have an adapter, else why it cannot.
  std::string WhyNot(NodeId id) const {
    for (const NodeId user : users_[ParamOf(id).outputs[0]]) {
      const Node& reader = graph_.node(user);
      if (reader.op != Op::kEinsum) {
        return fmt::format("{} reads its weight; only a matrix of a product can be a target",
                           OpName(reader.op));
      }
      const auto product = ProductOf(reader, OperandOf(reader, id));
      if (!product || !FileOrderOf(ParamOf(id), *product)) {
        return "its weight is no single matrix";
      }
    }
    return "";
  }

  size_t OperandOf(const Node& einsum, NodeId param) const {
    return einsum.inputs[1] == ParamOf(param).outputs[0] ? 1 : 0;
  }

  // Last parts of the names of modules that could be targets, each once.
  std::set<std::string> LastParts() const {
    std::set<std::string> parts;
    for (const NodeId id : graph_.NodesOf(Op::kParam)) {
      if (!IsWeight(id) || !WhyNot(id).empty()) continue;
      const std::string module = ModuleOf(NameOf(id));
      parts.insert(module.substr(module.rfind('.') + 1));
    }
    return parts;
  }

  bool IsWeight(NodeId id) const { return NameOf(id).ends_with(".weight"); }

  // Whether its product makes logits, which go to the loss or out of the graph.
  bool IsHead(NodeId id) const {
    for (const NodeId user : users_[ParamOf(id).outputs[0]]) {
      const ValueId made = graph_.node(user).outputs[0];
      for (const NodeId reader : users_[made]) {
        if (graph_.node(reader).op == Op::kCrossEntropy) return true;
      }
      for (const NamedValue& output : graph_.outputs) {
        if (output.value == made) return true;
      }
    }
    return false;
  }

  Status FindTargets() {
    for (const std::string& target : spec_.target_modules) {
      bool any = false;
      for (const NodeId id : graph_.NodesOf(Op::kParam)) {
        if (!IsWeight(id)) continue;
        const bool all = target == kAllLinear;
        if (all ? !WhyNot(id).empty() || IsHead(id) : !Matches(ModuleOf(NameOf(id)), target)) {
          continue;
        }
        const std::string why = WhyNot(id);
        if (!why.empty()) {
          return InvalidArgument(fmt::format("LoRA: target '{}' fits '{}', but {}", target,
                                             ModuleOf(NameOf(id)), why));
        }
        targets.insert(NameOf(id));
        any = true;
      }
      if (!any) return NothingFits("target", target);
    }
    return OkStatus();
  }

  Status FindSaved() {
    for (const std::string& module : spec_.modules_to_save) {
      bool any = false;
      for (const NodeId id : graph_.NodesOf(Op::kParam)) {
        if (!Matches(ModuleOf(NameOf(id)), module)) continue;
        if (targets.contains(NameOf(id))) {
          return InvalidArgument(
              fmt::format("LoRA: '{}' is a target and a module to save; take it out of one of them",
                          ModuleOf(NameOf(id))));
        }
        saved.insert(NameOf(id));
        any = true;
      }
      if (!any) return NothingFits("module to save", module);
    }
    return OkStatus();
  }

  Status NothingFits(const char* what, const std::string& name) const {
    return InvalidArgument(fmt::format("LoRA: no module fits the {} '{}'; the model has {}", what,
                                       name, fmt::join(LastParts(), ", ")));
  }

  const Graph& graph_;
  const LoraSpec& spec_;
  const IdVector<ValueId, std::vector<NodeId>> users_;
};

class AdapterRewrite {
 public:
  AdapterRewrite(const Graph& graph, const LoraSpec& spec, const TargetFinder& found)
      : graph_(graph), spec_(spec), found_(found) {}

  Result<Graph> Run() {
    return RewriteGraph(
        graph_, [this](Builder& builder, const Node& node, const std::vector<ValueId>& inputs,
                       const std::vector<TensorType>& types) {
          return Emit(builder, node, inputs, types);
        });
  }

 private:
  std::vector<ValueId> Emit(Builder& builder, const Node& node, const std::vector<ValueId>& inputs,
                            const std::vector<TensorType>& types) {
    if (node.op == Op::kParam) return EmitParam(builder, node, types);
    const std::vector<ValueId> made = builder.Add(node.op, inputs, node.attrs, types);
    if (node.op != Op::kEinsum) return made;
    for (const size_t operand : {size_t{1}, size_t{0}}) {
      const Node& param = graph_.producer(node.inputs[operand]);
      if (param.op != Op::kParam || !found_.targets.contains(param.attrs.Str("name"))) continue;
      return {EmitAdapted(builder, node, operand, inputs[1 - operand], made[0])};
    }
    return made;
  }

  std::vector<ValueId> EmitParam(Builder& builder, const Node& node,
                                 const std::vector<TensorType>& types) const {
    Attrs attrs = node.attrs;
    if (found_.saved.contains(attrs.Str("name"))) {
      attrs.Set(kSavedAttr, int64_t{1});
    } else {
      attrs.Set(kFrozenAttr, int64_t{1});
    }
    return builder.Add(Op::kParam, {}, std::move(attrs), types);
  }

  ValueId EmitAdapted(Builder& builder, const Node& node, size_t operand, ValueId x, ValueId y) {
    const Node& param = graph_.producer(node.inputs[operand]);
    const auto product = ProductOf(node, operand);
    MW_CHECK(product.has_value()) << "a target is a matrix of a product";
    const char rank = FreeLabel(*product);
    const Adapter adapter = AdapterOf(builder, param, *product);
    if (spec_.dropout > 0) {
      const std::string module = ModuleOf(param.attrs.Str("name"));
      // A weight of several products has a mask for each.
      const int nth = dropouts_[module]++;
      const std::string name =
          nth == 0 ? module + ".lora_dropout" : fmt::format("{}.lora_dropout.{}", module, nth);
      x = builder.AddOne(Op::kDropout, {x}, {{"rate", spec_.dropout}, {"name", name}});
    }
    std::string middle;
    for (const char label : product->input) {
      const bool summed = HasLabel(product->weight, label);
      if (!summed) middle.push_back(label);
    }
    middle.push_back(rank);
    const std::string in = Labels(product->weight, product->summed) + rank;
    const std::string out = rank + Labels(product->weight, product->kept);
    const ValueId low =
        builder.AddOne(Op::kEinsum, {x, adapter.a},
                       {{"equation", fmt::format("{},{}->{}", product->input, in, middle)}});
    const ValueId high =
        builder.AddOne(Op::kEinsum, {low, adapter.b},
                       {{"equation", fmt::format("{},{}->{}", middle, out, product->result)}});
    const ValueId scaled = builder.AddOne(Op::kScale, {high}, {{"factor", spec_.scale()}});
    return builder.AddOne(Op::kAdd, {y, scaled});
  }

  static std::string Labels(const std::string& labels, const std::vector<size_t>& dims) {
    std::string some;
    for (const size_t dim : dims) some.push_back(labels[dim]);
    return some;
  }

  // A [inputs.., r] and B [r, outputs..], made once per weight.
  Adapter AdapterOf(Builder& builder, const Node& param, const Product& product) {
    const auto [it, fresh] = made_.try_emplace(param.attrs.Str("name"));
    if (!fresh) return it->second;
    const TensorType& type = graph_.type(param.outputs[0]);
    const auto order = FileOrderOf(param, product);
    MW_CHECK(order.has_value()) << "a target's file has a matrix";
    int64_t inputs = 1;
    for (const size_t dim : product.summed) inputs *= type.dims[dim];
    Attrs a = AttrsOf(param, "lora_A");
    // Uniform in +-1/sqrt(inputs), as Kaiming's with a = sqrt(5) is.
    a.Set("init", std::string("uniform"));
    a.Set("mean", 0.0);
    a.Set("std", 1 / std::sqrt(3.0 * static_cast<double>(inputs)));
    a.Set(kLoraAlphaAttr, spec_.alpha);
    a.Set(kLoraStabilizedAttr, static_cast<int64_t>(spec_.rank_stabilized));
    a.Set(kLoraDropoutAttr, spec_.dropout);
    a.Set(kLoraTargetsAttr, spec_.target_modules);
    a.Set(kLoraOfAttr, FileName(param));
    a.Set(kLoraInputsFirstAttr, static_cast<int64_t>(order->inputs_first));
    Attrs b = AttrsOf(param, "lora_B");
    b.Set("init", std::string("zeros"));
    it->second.a = EmitSide(builder, type, product.summed, *order, true, std::move(a));
    it->second.b = EmitSide(builder, type, product.kept, *order, false, std::move(b));
    return it->second;
  }

  static Attrs AttrsOf(const Node& param, const char* side) {
    const std::string module = ModuleOf(param.attrs.Str("name"));
    return {{"name", fmt::format("{}.{}.weight", module, side)},
            {"export_name",
             fmt::format("base_model.model.{}.{}.weight", ModuleOf(FileName(param)), side)},
            {"decay", int64_t{1}},
            {kDrawnAttr, int64_t{1}},
            {kBesideAttr, param.attrs.Str("name")}};
  }

  // One of the two, with the weight's dims `dims` and the rank behind (A) or before (B) them. In a
  // file the rank comes first for A and last for B.
  ValueId EmitSide(Builder& builder, const TensorType& weight, const std::vector<size_t>& dims,
                   const FileOrder& order, bool is_a, Attrs attrs) const {
    const int64_t before = is_a ? 0 : 1;
    TensorType type{weight.dtype, {}};
    std::vector<int64_t> beside;
    int64_t elements = 1;
    for (const size_t dim : dims) {
      type.dims.push_back(weight.dims[dim]);
      beside.push_back(static_cast<int64_t>(dim));
      elements *= weight.dims[dim];
    }
    const auto at_rank = [&](auto& list) { return is_a ? list.end() : list.begin(); };
    type.dims.insert(at_rank(type.dims), spec_.rank);
    beside.insert(at_rank(beside), -1);
    std::vector<int64_t> perm;
    for (const size_t dim : order.dims) {
      const auto at = std::find(dims.begin(), dims.end(), dim);
      if (at != dims.end()) perm.push_back(before + (at - dims.begin()));
    }
    const int64_t rank_dim = is_a ? static_cast<int64_t>(dims.size()) : 0;
    perm.insert(is_a ? perm.begin() : perm.end(), rank_dim);
    const Dims shape = is_a ? Dims{spec_.rank, elements} : Dims{elements, spec_.rank};
    attrs.Set("export_perm", perm);
    attrs.Set("export_shape", shape);
    attrs.Set(kBesideDimsAttr, beside);
    return builder.AddOne(Op::kParam, {}, std::move(attrs), {type});
  }

  const Graph& graph_;
  const LoraSpec& spec_;
  const TargetFinder& found_;
  std::map<std::string, Adapter> made_;  // by the name of the weight
  std::map<std::string, int> dropouts_;  // by module
};

}  // namespace

double LoraSpec::scale() const {
  const double r = static_cast<double>(rank);
  return rank_stabilized ? alpha / std::sqrt(r) : alpha / r;
}

std::string ModuleOf(const std::string& param_name) {
  const size_t dot = param_name.rfind('.');
  return dot == std::string::npos ? "" : param_name.substr(0, dot);
}

Result<Graph> WithAdapters(const Graph& graph, const LoraSpec& spec) {
  MW_TRY(CheckSpec(spec));
  TargetFinder found(graph, spec);
  MW_TRY(found.Run());
  return AdapterRewrite(graph, spec, found).Run();
}

}  // namespace meshwright::ir
