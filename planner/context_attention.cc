#include "planner/context_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/rewrite.h"

namespace meshwright::planner {
namespace {

using ir::Builder;
using ir::Graph;
using ir::Node;
using ir::Op;

constexpr int64_t kHeadDim = 2;  // of q, k and v

const char* NameOf(ContextAttention way) {
  return kContextAttentionNames[static_cast<size_t>(way)];
}

// An attention of a row, and what of it one device has where its tokens are split.
struct Attention {
  Heads heads;
  int64_t parts = 1;   // over which the heads are split: those of the tensor group
  double tokens = 0;   // rows x tokens of a device
  double element = 0;  // bytes of an element of a head
  int64_t size = 0;    // of a head
  Ring ring;
  bool masks = false;  // dropout within it
};

Attention Of(const Graph& graph, const Node& node, const ir::JobRequest& job,
             const Layout& layout) {
  Attention result;
  const ir::TensorType& type = graph.type(node.inputs[0]);
  const ir::Dims& q = type.dims;
  if (node.op == Op::kAttentionQkv) {
    result.heads = {q[3], q[3]};
    result.size = q[4];
  } else {
    result.heads = {q[2], graph.type(node.inputs[1]).dims[2]};
    result.size = q[3];
  }
  // Where the tensor group does not divide them, the rules say so.
  if (result.heads.keys % layout.tensor() == 0) result.parts = layout.tensor();
  result.heads.queries /= result.parts;
  result.heads.keys /= result.parts;
  const int64_t block = q[1] / layout.context();
  result.ring.devices = layout.context();
  result.ring.steps = layout.context() - 1;
  result.ring.neighbours = layout.context_heads;
  if (block > 0 && HasShortWindows(graph, q[1])) {
    result.ring.steps = RingSteps(node.attrs.Int("window"), block, layout.context());
  }
  const auto shared = static_cast<double>(layout.data() * layout.microbatches * layout.context());
  result.tokens = static_cast<double>(q[0] * q[1]) / shared;
  const bool narrow = type.dtype == ir::DType::kF32 && job.train.compute_dtype != ir::DType::kF32;
  const ir::DType dtype = narrow ? job.train.compute_dtype : type.dtype;
  result.element = static_cast<double>(ir::DTypeBytes(dtype));
  result.masks = node.attrs.Real("dropout") > 0;
  return result;
}

std::vector<Attention> AttentionsOf(const ir::JobRequest& job, const Layout& layout) {
  std::vector<Attention> found;
  const Graph& graph = job.main().graph;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::kAttention && node.op != Op::kAttentionQkv) continue;
    found.push_back(Of(graph, node, job, layout));
  }
  return found;
}

double BytesMoved(ContextAttention way, const std::vector<Attention>& all) {
  double bytes = 0;
  for (const Attention& one : all) {
    bytes += one.tokens * one.element * static_cast<double>(one.size) *
             ElementsMoved(way, one.heads, one.ring);
  }
  return bytes;
}

bool ComesOutEven(const Attention& one, int64_t devices) {
  const std::optional<SharedHeads> shared = ShareHeads(one.heads, devices);
  return shared && shared->heads.queries == one.heads.queries;
}

// Keys and values that a device would have of whole rows.
double MostKeyBytes(const std::vector<Attention>& all, int64_t devices) {
  double most = 0;
  for (const Attention& one : all) {
    const auto elements = static_cast<double>(2 * one.heads.keys * one.size * devices);
    most = std::max(most, one.tokens * one.element * elements);
  }
  return most;
}

ContextAttention Choose(const std::vector<Attention>& all, int64_t devices) {
  // A ring takes less memory than all keys, and more messages.
  constexpr double kFewBytes = 16 << 20;
  const bool round =
      MostKeyBytes(all, devices) > kFewBytes ||
      BytesMoved(ContextAttention::kRing, all) < BytesMoved(ContextAttention::kGather, all);
  const ContextAttention of_keys = round ? ContextAttention::kRing : ContextAttention::kGather;
  const bool even = std::all_of(all.begin(), all.end(),
                                [&](const Attention& one) { return ComesOutEven(one, devices); });
  if (!even) return of_keys;
  const bool less = BytesMoved(ContextAttention::kUlysses, all) < BytesMoved(of_keys, all);
  return less ? ContextAttention::kUlysses : of_keys;
}

// The degrees of the axis that share heads which come out even.
std::string EvenDegrees(const Heads& heads) {
  std::string text;
  for (int64_t degree = 1; degree <= heads.queries && degree <= 64; ++degree) {
    if (heads.queries % degree == 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", degree);
  }
  return text;
}

Status CheckShared(const Attention& one, int64_t devices) {
  const std::string heads = one.parts == 1 ? fmt::format("{} heads", one.heads.queries)
                                           : fmt::format("the {} heads of a device of tensor={}",
                                                         one.heads.queries, one.parts);
  if (devices > one.heads.queries) {
    return InvalidField(
        "parallel.context_attention",
        fmt::format("is ulysses, and context={} devices cannot share {}; choose context in "
                    "{{{}}}, or ring or gather",
                    devices, heads, EvenDegrees(one.heads)));
  }
  if (one.masks && !ComesOutEven(one, devices)) {
    return InvalidField(
        "parallel.context_attention",
        fmt::format("is ulysses, and {} are no multiple of context={}: attention with dropout "
                    "takes no added heads; choose context in {{{}}}, or ring or gather",
                    heads, devices, EvenDegrees(one.heads)));
  }
  return OkStatus();
}

Status ShareAmongNeighbours(const std::vector<Attention>& all, Layout& layout) {
  const int64_t context = layout.context();
  if (!layout.stage_degrees.empty()) {
    return InvalidField("parallel.context_attention",
                        "is nested, and stages have meshes of their own; choose ring or ulysses");
  }
  int64_t heads = 0;
  for (const Attention& one : all) heads = std::gcd(heads, one.heads.keys);
  layout.context_heads = Neighbours({heads, heads}, context);
  if (layout.context_heads > 1) return OkStatus();
  return InvalidField(
      "parallel.context_attention",
      fmt::format("is nested, and no part of context={} devices can share {} heads of keys of a "
                  "device; choose a degree that has a divisor with them, or ring or gather",
                  context, heads));
}

// ---- Graphs -------------------------------------------------------------------------------------

ir::TensorType WithHeads(ir::TensorType type, int64_t heads) {
  type.dims[kHeadDim] = heads;
  return type;
}

// [b, s, g, e] -> [b, s, g * copies, e]: copies of a head are neighbours.
ValueId Repeated(Builder& builder, ValueId x, int64_t copies) {
  if (copies == 1 || !x.valid()) return x;
  const ir::TensorType type = builder.type(x);
  ir::TensorType wide = type;
  wide.dims.insert(wide.dims.begin() + kHeadDim + 1, copies);
  const ValueId all =
      builder.AddOne(Op::kBroadcast, {x}, {{"dims", std::vector<int64_t>{kHeadDim + 1}}}, {wide});
  return builder.AddOne(Op::kReshape, {all}, {}, {WithHeads(type, type.dims[kHeadDim] * copies)});
}

// [b, s, parts * had, e] -> [b, s, parts * wanted, e]: zeros behind the heads of each part, or
// those cut off again.
ValueId Resized(Builder& builder, ValueId x, int64_t parts, int64_t wanted) {
  if (!x.valid()) return x;
  const ir::TensorType type = builder.type(x);
  const int64_t had = type.dims[kHeadDim] / parts;
  if (had == wanted) return x;
  ir::TensorType by_part = WithHeads(type, parts);
  by_part.dims.insert(by_part.dims.begin() + kHeadDim + 1, had);
  const ValueId apart = builder.AddOne(Op::kReshape, {x}, {}, {by_part});
  const int64_t dim = kHeadDim + 1;
  const ValueId sized =
      had < wanted ? builder.AddOne(Op::kPad, {apart},
                                    {{"dim", dim}, {"before", int64_t{0}}, {"after", wanted - had}})
                   : builder.AddOne(Op::kSlice, {apart},
                                    {{"dim", dim}, {"start", int64_t{0}}, {"size", wanted}});
  return builder.AddOne(Op::kReshape, {sized}, {}, {WithHeads(type, parts * wanted)});
}

std::vector<ValueId> EmitShared(Builder& builder, const Node& node, std::vector<ValueId> inputs,
                                const Attention& one, const SharedHeads& shared) {
  inputs[0] = Resized(builder, inputs[0], one.parts, shared.heads.queries);
  for (const size_t i : {1, 2}) {
    inputs[i] = Repeated(builder, inputs[i], shared.copies);
    inputs[i] = Resized(builder, inputs[i], one.parts, shared.heads.keys);
  }
  std::vector<ValueId> results = builder.Add(node.op, inputs, node.attrs);
  results[0] = Resized(builder, results[0], one.parts, one.heads.queries);
  return results;
}

}  // namespace

std::optional<SharedHeads> ShareHeads(const Heads& heads, int64_t devices) {
  MW_CHECK(heads.keys > 0 && heads.queries % heads.keys == 0)
      << heads.queries << " query heads for " << heads.keys;
  if (devices > heads.queries) return std::nullopt;
  const int64_t group = heads.queries / heads.keys;
  std::optional<SharedHeads> best;
  for (int64_t copies = 1; copies <= group; ++copies) {
    if (group % copies != 0) continue;
    const int64_t keys = (heads.keys * copies + devices - 1) / devices * devices;
    const SharedHeads shared{copies, {keys * (group / copies), keys}};
    const auto cost = [](const SharedHeads& of) {
      return std::tuple(of.heads.queries, of.heads.keys);
    };
    if (!best || cost(shared) < cost(*best)) best = shared;
  }
  return best;
}

int64_t RingSteps(int64_t window, int64_t tokens, int64_t devices) {
  MW_CHECK(tokens > 0 && devices > 0) << tokens << " tokens of " << devices << " devices";
  if (window == 0) return devices - 1;
  // The nearest key of the block before is one position before the first query.
  return window == 1 ? 0 : std::min(devices - 1, (window - 2) / tokens + 1);
}

bool HasShortWindows(const Graph& graph, int64_t tokens) {
  return std::all_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    if (node.op == Op::kAttentionQkv) return false;
    const int64_t window = node.attrs.Int("window");
    return node.op != Op::kAttention || (window > 0 && 2 * window <= tokens);
  });
}

int64_t Neighbours(const Heads& heads, int64_t devices) {
  int64_t most = 1;
  for (int64_t size = 2; size < devices; ++size) {
    if (devices % size == 0 && heads.keys % size == 0) most = size;
  }
  return most;
}

double ElementsMoved(ContextAttention way, const Heads& heads, const Ring& ring) {
  const auto c = static_cast<double>(ring.devices);
  const auto k = static_cast<double>(ring.steps);
  const auto keys = static_cast<double>(heads.keys);
  switch (way) {
    case ContextAttention::kGather:
      return 4 * (c - 1) * keys;
    case ContextAttention::kRing:
      return (6 * k + (ring.steps > 0 ? 2 : 0)) * keys;
    case ContextAttention::kUlysses: {
      const SharedHeads shared = ShareHeads(heads, ring.devices).value_or(SharedHeads{1, heads});
      return 4 * (c - 1) / c * static_cast<double>(shared.heads.queries + shared.heads.keys);
    }
    case ContextAttention::kNested: {
      const auto u = static_cast<double>(ring.neighbours);
      const auto all = static_cast<double>(heads.queries + heads.keys);
      return 4 * (u - 1) / u * all + (6 * c / u - 4) * keys;
    }
    case ContextAttention::kAuto:
      break;
  }
  MW_CHECK(false) << "auto moves nothing";
  return 0;
}

Result<Layout> ResolveContextAttention(const ir::JobRequest& job, const Layout& layout,
                                       std::vector<std::string>& notes) {
  MW_CHECK(layout.context() > 1) << layout.ToString();
  Layout resolved = layout;
  std::vector<Attention> all = AttentionsOf(job, layout);
  const int64_t devices = layout.context();
  if (all.empty()) {
    resolved.context_attention = ContextAttention::kGather;
    return resolved;
  }
  if (layout.context_attention == ContextAttention::kAuto) {
    resolved.context_attention = Choose(all, devices);
  }
  if (layout.context_attention == ContextAttention::kNested) {
    MW_TRY(ShareAmongNeighbours(all, resolved));
    all = AttentionsOf(job, resolved);
  }
  const bool shares = resolved.context_attention == ContextAttention::kUlysses;
  for (const Attention& one : all) {
    if (shares) MW_TRY(CheckShared(one, devices));
  }
  std::string moved;
  for (const ContextAttention way : {ContextAttention::kGather, ContextAttention::kRing,
                                     ContextAttention::kUlysses, ContextAttention::kNested}) {
    if (way == ContextAttention::kNested && resolved.context_heads == 1) continue;
    moved += fmt::format("{}{} {:.3g} MB", moved.empty() ? "" : ", ", NameOf(way),
                         BytesMoved(way, all) / 1e6);
  }
  notes.push_back(
      fmt::format("attention over context={} by {} (a device sends for a microbatch: {})", devices,
                  NameOf(resolved.context_attention), moved));
  const auto uneven = std::find_if(all.begin(), all.end(), [&](const Attention& one) {
    return shares && !ComesOutEven(one, devices);
  });
  if (uneven != all.end()) {
    notes.push_back(fmt::format(
        "{} heads are {} with heads of zeros, so that context={} devices have as many each",
        uneven->heads.queries, ShareHeads(uneven->heads, devices)->heads.queries, devices));
  }
  return resolved;
}

Result<ir::JobRequest> WithSharedHeads(const ir::JobRequest& job, const Layout& layout) {
  MW_CHECK(layout.context_attention == ContextAttention::kUlysses) << layout.ToString();
  ir::JobRequest shared = job;
  for (ir::JobProgram& program : shared.programs) {
    const Graph& graph = program.graph;
    MW_ASSIGN_OR_RETURN(
        program.graph, ir::RewriteGraph(graph, [&](Builder& builder, const Node& node,
                                                   const std::vector<ValueId>& inputs,
                                                   const std::vector<ir::TensorType>& types) {
          if (node.op != Op::kAttention) return builder.Add(node.op, inputs, node.attrs, types);
          const Attention one = Of(graph, node, job, layout);
          const std::optional<SharedHeads> heads = ShareHeads(one.heads, layout.context());
          if (!heads) return builder.Add(node.op, inputs, node.attrs, types);
          return EmitShared(builder, node, inputs, one, *heads);
        }));
  }
  return shared;
}

}  // namespace meshwright::planner
