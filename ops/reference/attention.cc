// attention and its gradient, one query row at a time.
//
// p[j] = exp(scale * q.k[j] - lse);  o = sum p[j] v[j];  with D = do.o:  dv[j] += p[j] do,
// ds[j] = p[j] (do.v[j] - D) scale,  dq = sum ds[j] k[j],  dk[j] += ds[j] q. With dropout, p in o
// and dv, and do.v in ds, are multiplied by the mask's factor m[j]; D = do.o holds as it is.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/attention_shape.h"
#include "ops/dropout_mask.h"
#include "ops/reference/larger.h"
#include "ops/reference/reference.h"

namespace meshwright::ops::reference {
namespace {

template <typename T>
double Dot(const T* x, const T* y, int64_t count) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += static_cast<double>(x[i]) * y[i];
  return total;
}

// Calls body(query offset, key offset, batch * h + head) for every head of every batch row.
template <typename Body>
void ForEachHead(const AttentionShape& shape, const Body& body) {
  for (int64_t b = 0; b < shape.b; ++b) {
    for (int64_t j = 0; j < shape.h; ++j) {
      body(shape.QueryOffset(b, j), shape.KeyOffset(b, j / shape.heads_per_group()),
           b * shape.h + j);
    }
  }
}

// Keys that a query sees, by their places in the block of keys.
class Sight {
 public:
  Sight(const AttentionShape& shape, Inputs inputs, size_t segments) : shape_(shape) {
    for (int64_t j = 0; j < shape.keys; ++j) positions_.push_back(shape.key_block.PositionOf(j));
    if (inputs.size() > segments) segments_ = inputs[segments].as<int32_t>();
  }

  int64_t PositionOf(int64_t key) const { return positions_[static_cast<size_t>(key)]; }

  const std::vector<int64_t>& Of(int64_t batch, int64_t query) {
    seen_.clear();
    const int64_t position = shape_.query_block.PositionOf(query);
    const int32_t* row = segments_ == nullptr ? nullptr : segments_ + batch * shape_.tokens;
    for (int64_t j = 0; j < shape_.keys; ++j) {
      if (!shape_.Sees(position, PositionOf(j))) continue;
      if (row != nullptr &&
          row[shape_.key_block.start + j] != row[shape_.query_block.start + query])
        continue;
      seen_.push_back(j);
    }
    return seen_;
  }

 private:
  const AttentionShape& shape_;
  const int32_t* segments_ = nullptr;  // [b, tokens], or null: all of a row is one
  std::vector<int64_t> positions_;
  std::vector<int64_t> seen_;
};

// Fills scores with scale * q.k of the keys seen; returns the largest, -inf when there is none.
template <typename T>
double ScoreRow(const AttentionShape& shape, const T* q, const T* keys,
                const std::vector<int64_t>& seen, std::vector<double>& scores) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const int64_t j : seen) {
    scores[j] = shape.scale() * Dot(q, keys + j * shape.kv_stride(), shape.e);
    largest = Larger(largest, scores[j]);
  }
  return largest;
}

// Turns scores into probabilities and returns lse, natural log. A row that sees nothing has lse
// -inf and all zeros.
double SoftmaxRow(double largest, const std::vector<int64_t>& seen, std::vector<double>& scores) {
  if (largest == -std::numeric_limits<double>::infinity()) {
    for (const int64_t j : seen) scores[j] = 0;
    return largest;
  }
  double total = 0;
  for (const int64_t j : seen) total += std::exp(scores[j] - largest);
  const double lse = largest + std::log(total);
  for (const int64_t j : seen) scores[j] = std::exp(scores[j] - lse);
  return lse;
}

// A query row of local head `head` (batch * h + head).
struct Query {
  int64_t head = 0;
  int64_t place = 0;
};

// factors[j] = m[j] of the keys that the query sees.
void MaskFactors(const AttentionShape& shape, const AttentionDropout& dropout,
                 const RunContext& context, const Query& query, const Sight& sight,
                 const std::vector<int64_t>& seen, std::vector<double>& factors) {
  if (!dropout.active()) return;
  const uint64_t start =
      dropout.RowStart(query.head / shape.h, query.head % shape.h,
                       shape.query_block.PositionOf(query.place), context.microbatch);
  for (const int64_t j : seen) {
    factors[j] = dropout.mask().Factor(context, start + static_cast<uint64_t>(sight.PositionOf(j)));
  }
}

template <typename T>
KernelResult MakeForward(const AttentionShape& shape, const AttentionDropout& dropout) {
  return MakeFunctionKernel(
      [shape, dropout, factors = std::vector<double>(static_cast<size_t>(shape.keys), 1.0),
       scores = std::vector<double>(static_cast<size_t>(shape.keys)),
       sums = std::vector<double>(static_cast<size_t>(shape.e))](
          const RunContext& context, Inputs inputs, Outputs outputs) mutable -> Status {
        Sight sight(shape, inputs, 3);
        ForEachHead(shape, [&](int64_t query, int64_t key, int64_t head) {
          const T* v = inputs[2].as<T>() + key;
          for (int64_t i = 0; i < shape.s; ++i) {
            const int64_t token = query + i * shape.q_stride();
            const std::vector<int64_t>& seen = sight.Of(head / shape.h, i);
            const double largest =
                ScoreRow(shape, inputs[0].as<T>() + token, inputs[1].as<T>() + key, seen, scores);
            const double lse = SoftmaxRow(largest, seen, scores);
            outputs[1].as<T>()[head * shape.s + i] = static_cast<T>(lse);
            MaskFactors(shape, dropout, context, {head, i}, sight, seen, factors);
            std::fill(sums.begin(), sums.end(), 0.0);
            for (const int64_t j : seen) {
              const T* value = v + j * shape.kv_stride();
              for (int64_t d = 0; d < shape.e; ++d) sums[d] += factors[j] * scores[j] * value[d];
            }
            T* o = outputs[0].as<T>() + token;
            for (int64_t d = 0; d < shape.e; ++d) o[d] = static_cast<T>(sums[d]);
          }
        });
        return {};
      });
}

// Gradients accumulate in double and are stored once.
template <typename T>
class GradKernel final : public Kernel {
 public:
  GradKernel(const AttentionShape& shape, const AttentionDropout& dropout)
      : shape_(shape),
        dropout_(dropout),
        factors_(static_cast<size_t>(shape.keys), 1.0),
        scores_(static_cast<size_t>(shape.keys)),
        dq_(static_cast<size_t>(shape.e)),
        dk_(static_cast<size_t>(shape.b * shape.keys * shape.kv_stride())),
        dv_(dk_.size()) {}

  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    std::fill(dk_.begin(), dk_.end(), 0.0);
    std::fill(dv_.begin(), dv_.end(), 0.0);
    Sight sight(shape_, inputs, 6);
    ForEachHead(shape_, [&](int64_t query, int64_t key, int64_t head) {
      const T* lse = inputs[4].as<T>() + head * shape_.s;
      for (int64_t i = 0; i < shape_.s; ++i) {
        const int64_t token = query + i * shape_.q_stride();
        const std::vector<int64_t>& seen = sight.Of(head / shape_.h, i);
        Probabilities(inputs, token, key, seen, static_cast<double>(lse[i]));
        MaskFactors(shape_, dropout_, context, {head, i}, sight, seen, factors_);
        AddRow(inputs, token, key, seen, outputs[0].as<T>());
      }
    });
    for (size_t i = 0; i < dk_.size(); ++i) {
      outputs[1].as<T>()[i] = static_cast<T>(dk_[i]);
      outputs[2].as<T>()[i] = static_cast<T>(dv_[i]);
    }
    return {};
  }

 private:
  // `token`, `key`: offsets of the query row and of key 0 of its head.
  void Probabilities(Inputs inputs, int64_t token, int64_t key, const std::vector<int64_t>& seen,
                     double lse) {
    ScoreRow(shape_, inputs[0].as<T>() + token, inputs[1].as<T>() + key, seen, scores_);
    const bool blind = lse == -std::numeric_limits<double>::infinity();
    for (const int64_t j : seen) scores_[j] = blind ? 0 : std::exp(scores_[j] - lse);
  }

  void AddRow(Inputs inputs, int64_t token, int64_t key, const std::vector<int64_t>& seen, T* dq) {
    const T* q = inputs[0].as<T>() + token;
    const T* grad = inputs[5].as<T>() + token;
    const double d = Dot(grad, inputs[3].as<T>() + token, shape_.e);
    std::fill(dq_.begin(), dq_.end(), 0.0);
    for (const int64_t j : seen) {
      const int64_t at = key + j * shape_.kv_stride();
      const T* k = inputs[1].as<T>() + at;
      const double dp = factors_[j] * Dot(grad, inputs[2].as<T>() + at, shape_.e);
      const double ds = scores_[j] * (dp - d) * shape_.scale();
      for (int64_t i = 0; i < shape_.e; ++i) {
        dv_[at + i] += factors_[j] * scores_[j] * grad[i];
        dk_[at + i] += ds * q[i];
        dq_[i] += ds * k[i];
      }
    }
    for (int64_t i = 0; i < shape_.e; ++i) dq[token + i] = static_cast<T>(dq_[i]);
  }

  AttentionShape shape_;
  AttentionDropout dropout_;
  std::vector<double> factors_;
  std::vector<double> scores_;
  std::vector<double> dq_;
  std::vector<double> dk_;
  std::vector<double> dv_;
};

}  // namespace

KernelResult MakeAttention(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const AttentionShape shape, AttentionShapeOf(spec));
  MW_ASSIGN_OR_RETURN(const AttentionDropout dropout, AttentionDropout::Of(spec));
  return ForFloatType(spec, spec.inputs[0].dtype, [&](auto zero) -> KernelResult {
    using T = decltype(zero);
    if (spec.op == ir::Op::kAttention) return MakeForward<T>(shape, dropout);
    return std::unique_ptr<Kernel>(std::make_unique<GradKernel<T>>(shape, dropout));
  });
}

}  // namespace meshwright::ops::reference
