// conv2d and its gradients of f32 images, on oneDNN. The batch is cut into pieces, each of which is
// one call on one thread; how many there are depends on the batch alone, so that sums of the
// kernel's gradient do not depend on the number of threads.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "ir/images.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/dnnl_engine.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/scratch.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

constexpr int64_t kMostPieces = 8;

// The three tensors of a convolution, whichever of them is made.
struct ConvShape {
  ir::Dims x, k, y;
  ir::Windows windows;
};

ConvShape ShapeOf(const KernelSpec& spec) {
  const ir::Dims& a = spec.inputs[0].dims;
  const ir::Dims& b = spec.inputs[1].dims;
  const ir::Dims& result = spec.outputs[0].dims;
  ConvShape shape;
  if (spec.op == ir::Op::kConv2d) {
    shape = {a, b, result, {}};
  } else if (spec.op == ir::Op::kConv2dGradInput) {
    shape = {result, a, b, {}};
  } else {
    shape = {a, result, b, {}};
  }
  shape.windows = ir::Windows::Of(spec.attrs, {shape.k[0], shape.k[1]});
  return shape;
}

bool Describe(const ir::Dims& dims, dnnl_format_tag_t tag, dnnl_memory_desc_t* out) {
  const dnnl_dims_t sizes = {dims[0], dims[1], dims[2], dims[3]};
  return dnnl_memory_desc_init_by_tag(out, 4, sizes, dnnl_f32, tag) == dnnl_success;
}

// The library names dims (batch, channels, height, width) and (o, i, height, width), whatever lies
// where in memory.
bool DescribeAll(const ConvShape& s, std::array<dnnl_memory_desc_t, 3>& types) {
  return Describe({s.x[0], s.x[3], s.x[1], s.x[2]}, dnnl_nhwc, &types[0]) &&
         Describe({s.k[3], s.k[2], s.k[0], s.k[1]}, dnnl_hwio, &types[1]) &&
         Describe({s.y[0], s.y[3], s.y[1], s.y[2]}, dnnl_nhwc, &types[2]);
}

// Padding behind the image that makes the last window fit exactly: what is left of it is not read.
int64_t PaddingBehind(const ConvShape& s, size_t dim) {
  const ir::Windows& w = s.windows;
  return (s.y[dim + 1] - 1) * w.strides[dim] + w.size[dim] - w.before[dim] - s.x[dim + 1];
}

bool InitDesc(ir::Op op, const ConvShape& s, const std::array<dnnl_memory_desc_t, 3>& types,
              dnnl_convolution_desc_t* out) {
  const ir::Windows& w = s.windows;
  const dnnl_dims_t strides = {w.strides[0], w.strides[1]};
  const dnnl_dims_t before = {w.before[0], w.before[1]};
  const dnnl_dims_t after = {PaddingBehind(s, 0), PaddingBehind(s, 1)};
  const auto& [x, k, y] = types;
  if (op == ir::Op::kConv2d) {
    return dnnl_convolution_forward_desc_init(out, dnnl_forward_training, dnnl_convolution_direct,
                                              &x, &k, nullptr, &y, strides, before,
                                              after) == dnnl_success;
  }
  if (op == ir::Op::kConv2dGradInput) {
    return dnnl_convolution_backward_data_desc_init(out, dnnl_convolution_direct, &x, &k, &y,
                                                    strides, before, after) == dnnl_success;
  }
  return dnnl_convolution_backward_weights_desc_init(out, dnnl_convolution_direct, &x, &k, nullptr,
                                                     &y, strides, before, after) == dnnl_success;
}

// One call for some images.
class ConvCall {
 public:
  ConvCall() = default;
  ~ConvCall() { dnnl_primitive_destroy(primitive_); }
  ConvCall(const ConvCall&) = delete;
  ConvCall& operator=(const ConvCall&) = delete;

  // Null: the library has none.
  static std::shared_ptr<const ConvCall> Make(ir::Op op, const ConvShape& shape) {
    auto call = std::make_shared<ConvCall>();
    if (!call->Build(op, shape)) return nullptr;
    return call;
  }

  // x, k, y: one of them is written.
  void Run(const std::array<void*, 3>& data) const {
    ForceOneOpenMpThread();
    constexpr int64_t kFloat = sizeof(float);
    const std::array<void*, 4> places = {data[0], data[1], data[2],
                                         ThreadScratch((scratch_bytes_ + kFloat - 1) / kFloat)};
    std::array<dnnl_exec_arg_t, 4> arguments{};
    for (size_t i = 0; i < places.size(); ++i) {
      arguments[i].arg = names_[i];
      const dnnl_memory_desc_t& type = i < 3 ? types_[i] : scratch_;
      const dnnl_status_t made =
          dnnl_memory_create(&arguments[i].memory, &type, DnnlEngine(), places[i]);
      MW_CHECK(made == dnnl_success) << "dnnl_memory_create returned " << static_cast<int>(made);
    }
    const dnnl_status_t status =
        dnnl_primitive_execute(primitive_, DnnlStream(), 4, arguments.data());
    MW_CHECK(status == dnnl_success) << "convolution returned " << static_cast<int>(status);
    dnnl_stream_wait(DnnlStream());
    for (const dnnl_exec_arg_t& argument : arguments) dnnl_memory_destroy(argument.memory);
  }

 private:
  bool Build(ir::Op op, const ConvShape& shape) {
    // Primitives are made for as many threads as they find.
    ForceOneOpenMpThread();
    if (op == ir::Op::kConv2dGradInput) names_[0] = DNNL_ARG_DIFF_SRC;
    if (op == ir::Op::kConv2dGradKernel) names_[1] = DNNL_ARG_DIFF_WEIGHTS;
    if (op != ir::Op::kConv2d) names_[2] = DNNL_ARG_DIFF_DST;
    dnnl_convolution_desc_t operation;
    if (DnnlEngine() == nullptr || !DescribeAll(shape, types_) ||
        !InitDesc(op, shape, types_, &operation)) {
      return false;
    }
    dnnl_primitive_attr_t attr = nullptr;
    dnnl_primitive_desc_t description = nullptr;
    const bool described =
        dnnl_primitive_attr_create(&attr) == dnnl_success &&
        dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success &&
        CreateDescription(op, operation, attr, shape, &description);
    dnnl_primitive_attr_destroy(attr);
    if (!described) return false;
    scratch_ = *dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    scratch_bytes_ = static_cast<int64_t>(dnnl_memory_desc_get_size(&scratch_));
    const bool made = dnnl_primitive_create(&primitive_, description) == dnnl_success;
    dnnl_primitive_desc_destroy(description);
    return made;
  }

  // Gradients take the forward's description as a hint.
  bool CreateDescription(ir::Op op, const dnnl_convolution_desc_t& operation,
                         const_dnnl_primitive_attr_t attr, const ConvShape& shape,
                         dnnl_primitive_desc_t* out) const {
    dnnl_primitive_desc_t hint = nullptr;
    if (op != ir::Op::kConv2d) {
      dnnl_convolution_desc_t forward;
      if (!InitDesc(ir::Op::kConv2d, shape, types_, &forward) ||
          dnnl_primitive_desc_create(&hint, &forward, attr, DnnlEngine(), nullptr) !=
              dnnl_success) {
        return false;
      }
    }
    const bool made =
        dnnl_primitive_desc_create(out, &operation, attr, DnnlEngine(), hint) == dnnl_success;
    if (hint != nullptr) dnnl_primitive_desc_destroy(hint);
    return made;
  }

  dnnl_primitive_t primitive_ = nullptr;
  std::array<dnnl_memory_desc_t, 3> types_{};
  std::array<int, 4> names_ = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
  dnnl_memory_desc_t scratch_{};
  int64_t scratch_bytes_ = 0;
};

// The calls of all pieces; the last piece may be smaller than the others.
struct Pieces {
  int64_t images = 0;  // of a piece
  int64_t count = 0;
  std::shared_ptr<const ConvCall> full;
  std::shared_ptr<const ConvCall> last;
  int64_t x = 0;  // elements of an image
  int64_t y = 0;
  int64_t k = 0;  // of the kernel

  void Run(int64_t piece, float* of_x, float* of_k, float* of_y) const {
    const ConvCall& call = piece + 1 == count ? *last : *full;
    call.Run({of_x + piece * images * x, of_k, of_y + piece * images * y});
  }
};

bool MakePieces(ir::Op op, const ConvShape& shape, Pieces& pieces) {
  const int64_t batch = shape.x[0];
  pieces.images = (batch + kMostPieces - 1) / kMostPieces;
  pieces.count = (batch + pieces.images - 1) / pieces.images;
  pieces.x = Product(shape.x) / batch;
  pieces.y = Product(shape.y) / batch;
  pieces.k = Product(shape.k);
  const auto make = [&](int64_t images) {
    ConvShape part = shape;
    part.x[0] = part.y[0] = images;
    return ConvCall::Make(op, part);
  };
  pieces.full = make(pieces.images);
  const int64_t left = batch - (pieces.count - 1) * pieces.images;
  pieces.last = left == pieces.images ? pieces.full : make(left);
  return pieces.full != nullptr && pieces.last != nullptr;
}

// Each piece has a gradient of its own; they are added in their order.
KernelResult MakeKernelGrad(Pieces pieces) {
  std::vector<float> parts(static_cast<size_t>(pieces.count * pieces.k));
  return MakeFunctionKernel(
      [pieces = std::move(pieces), parts = std::move(parts)](
          const RunContext& context, Inputs inputs, Outputs outputs) mutable -> Status {
        ParallelItems(context, pieces.count, [&](int64_t piece) {
          pieces.Run(piece, inputs[0].as<float>(), parts.data() + piece * pieces.k,
                     inputs[1].as<float>());
        });
        float* dk = outputs[0].as<float>();
        ParallelRange(context, pieces.k, kElementGrain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            double sum = 0;
            for (int64_t piece = 0; piece < pieces.count; ++piece) {
              sum += static_cast<double>(parts[static_cast<size_t>(piece * pieces.k + i)]);
            }
            dk[i] = static_cast<float>(sum);
          }
        });
        return {};
      });
}

}  // namespace

KernelResult MakeConv(const KernelSpec& spec) {
  Pieces pieces;
  if (!MakePieces(spec.op, ShapeOf(spec), pieces)) return std::unique_ptr<Kernel>();
  if (spec.op == ir::Op::kConv2dGradKernel) return MakeKernelGrad(std::move(pieces));
  const bool forward = spec.op == ir::Op::kConv2d;
  return MakeFunctionKernel([pieces = std::move(pieces), forward](const RunContext& context,
                                                                  Inputs inputs,
                                                                  Outputs outputs) -> Status {
    float* a = inputs[0].as<float>();
    float* b = inputs[1].as<float>();
    float* out = outputs[0].as<float>();
    ParallelItems(context, pieces.count, [&](int64_t piece) {
      if (forward) {
        pieces.Run(piece, a, b, out);
      } else {
        pieces.Run(piece, out, a, b);
      }
    });
    return {};
  });
}

}  // namespace meshwright::ops::cpu
