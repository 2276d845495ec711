#include "ops/cpu/half_gemm.h"

#include <array>
#include <utility>

#include "base/check.h"
#include "ops/cpu/dnnl_engine.h"
#include "ops/cpu/half_tile.h"
#include "ops/cpu/scratch.h"

namespace meshwright::ops::cpu {
namespace {

// A dim of one element may have any stride; the library wants one that fits a matrix.
Strides Settled(int64_t rows, int64_t columns, Strides strides) {
  if (columns == 1) strides.column = 1;
  if (rows == 1) strides.row = strides.column == 1 ? columns : 1;
  return strides;
}

bool Describe(int64_t rows, int64_t columns, const Strides& strides, dnnl_data_type_t type,
              dnnl_memory_desc_t* out) {
  if ((strides.column != 1 && strides.row != 1) || strides.column < 1 || strides.row < 1) {
    return false;
  }
  const dnnl_dims_t dims = {rows, columns};
  const dnnl_dims_t steps = {strides.row, strides.column};
  return dnnl_memory_desc_init_by_strides(out, 2, dims, type, steps) == dnnl_success;
}

Strides Flipped(const Strides& strides) { return {strides.column, strides.row}; }

}  // namespace

struct HalfGemm::Primitive {
  Primitive() = default;
  ~Primitive() { dnnl_primitive_destroy(handle); }
  Primitive(const Primitive&) = delete;
  Primitive& operator=(const Primitive&) = delete;

  dnnl_primitive_t handle = nullptr;
  std::array<dnnl_memory_desc_t, 4> types{};  // a, b, c, scratch
  int64_t scratch_bytes = 0;
};

namespace {

bool Build(const HalfGemmShape& shape, dnnl_primitive_desc_t* out,
           std::array<dnnl_memory_desc_t, 4>& types) {
  const auto& [m, n, k] = shape.size;
  const dnnl_data_type_t result = shape.c_dtype == ir::DType::kBF16 ? dnnl_bf16 : dnnl_f32;
  if (!Describe(m, k, shape.a, dnnl_bf16, &types[0]) ||
      !Describe(k, n, shape.b, dnnl_bf16, &types[1]) ||
      !Describe(m, n, shape.c, result, &types[2])) {
    return false;
  }
  dnnl_matmul_desc_t operation;
  if (dnnl_matmul_desc_init(&operation, &types[0], &types[1], nullptr, &types[2]) != dnnl_success) {
    return false;
  }
  dnnl_primitive_attr_t attr = nullptr;
  dnnl_post_ops_t behind = nullptr;
  bool ok =
      dnnl_primitive_attr_create(&attr) == dnnl_success &&
      dnnl_post_ops_create(&behind) == dnnl_success &&
      dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success;
  if (ok && shape.accumulate) ok = dnnl_post_ops_append_sum(behind, 1.0f) == dnnl_success;
  ok = ok && dnnl_primitive_attr_set_post_ops(attr, behind) == dnnl_success &&
       dnnl_primitive_desc_create(out, &operation, attr, DnnlEngine(), nullptr) == dnnl_success;
  dnnl_post_ops_destroy(behind);
  dnnl_primitive_attr_destroy(attr);
  return ok;
}

}  // namespace

std::optional<HalfGemm> HalfGemm::Make(HalfGemmShape shape) {
  if (!UsesHalfInstructions() || DnnlEngine() == nullptr) return std::nullopt;
  // Primitives are made for as many threads as they find.
  ForceOneOpenMpThread();
  shape.a = Settled(shape.size.m, shape.size.k, shape.a);
  shape.b = Settled(shape.size.k, shape.size.n, shape.b);
  shape.c = Settled(shape.size.m, shape.size.n, shape.c);
  HalfGemm gemm;
  gemm.swapped_ = shape.c.column != 1;
  if (gemm.swapped_) {
    std::swap(shape.size.m, shape.size.n);
    std::swap(shape.a, shape.b);
    for (Strides* strides : {&shape.a, &shape.b, &shape.c}) *strides = Flipped(*strides);
  }
  auto primitive = std::make_shared<Primitive>();
  dnnl_primitive_desc_t description = nullptr;
  if (!Build(shape, &description, primitive->types)) return std::nullopt;
  const dnnl_memory_desc_t* scratch =
      dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
  primitive->types[3] = *scratch;
  primitive->scratch_bytes = static_cast<int64_t>(dnnl_memory_desc_get_size(scratch));
  const bool made = dnnl_primitive_create(&primitive->handle, description) == dnnl_success;
  dnnl_primitive_desc_destroy(description);
  if (!made) return std::nullopt;
  gemm.primitive_ = std::move(primitive);
  return gemm;
}

void HalfGemm::Run(const uint16_t* a, const uint16_t* b, void* c) const {
  ForceOneOpenMpThread();
  if (swapped_) std::swap(a, b);
  constexpr int64_t kFloat = sizeof(float);
  void* scratch = ThreadScratch((primitive_->scratch_bytes + kFloat - 1) / kFloat);
  const std::array<void*, 4> data = {const_cast<uint16_t*>(a), const_cast<uint16_t*>(b), c,
                                     scratch};
  constexpr std::array<int, 4> kNames = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                         DNNL_ARG_SCRATCHPAD};
  std::array<dnnl_exec_arg_t, 4> arguments{};
  for (size_t i = 0; i < 4; ++i) {
    arguments[i].arg = kNames[i];
    const dnnl_status_t made =
        dnnl_memory_create(&arguments[i].memory, &primitive_->types[i], DnnlEngine(), data[i]);
    MW_CHECK(made == dnnl_success) << "dnnl_memory_create returned " << static_cast<int>(made);
  }
  const dnnl_status_t status =
      dnnl_primitive_execute(primitive_->handle, DnnlStream(), 4, arguments.data());
  MW_CHECK(status == dnnl_success) << "bf16 matmul returned " << static_cast<int>(status);
  dnnl_stream_wait(DnnlStream());
  for (const dnnl_exec_arg_t& argument : arguments) dnnl_memory_destroy(argument.memory);
}

}  // namespace meshwright::ops::cpu
