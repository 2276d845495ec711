// adafactor: rows, then columns, then the sums that scale a step, then the step. Every sum is made
// in f64 in one order, however many threads there are.
#include <cmath>
#include <memory>
#include <vector>

#include "ops/cpu/cpu.h"
#include "ops/optimizer_math.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

// Sums of a row of all matrices: between passes, of one kernel.
struct RowSums {
  std::vector<double> param;
  std::vector<double> update;
};

class Adafactor {
 public:
  Adafactor(const AdafactorConfig& config, RowSums& sums, const RunContext& context, Inputs inputs,
            Outputs outputs)
      : config_(config),
        sums_(sums),
        context_(context),
        p_(inputs[0].as<float>()),
        g_(inputs[1].as<float>()),
        old_rows_(inputs[2].as<float>()),
        old_columns_(inputs[3].as<float>()),
        multiplier_(static_cast<double>(*inputs[4].as<float>())),
        lr_(static_cast<double>(*inputs[5].as<float>())),
        p_to_(outputs[0].as<float>()),
        rows_(outputs[1].as<float>()),
        columns_(outputs[2].as<float>()),
        decay_(config.Decay(context.step)) {}

  void Run() {
    RenewRows();
    RenewColumns();
    FindMeans();
    SumUpdates();
    double param_squares = 0;
    double update_squares = 0;
    for (int64_t row = 0; row < AllRows(); ++row) {
      param_squares += sums_.param[static_cast<size_t>(row)];
      update_squares += sums_.update[static_cast<size_t>(row)];
    }
    const double rate = config_.Rate(lr_, param_squares);
    Step(static_cast<float>(1.0 - config_.weight_decay * rate),
         static_cast<float>(rate / config_.Clip(update_squares)));
  }

 private:
  int64_t AllRows() const { return config_.matrices * config_.rows; }
  // Rows that are worth a thread.
  int64_t RowGrain() const { return std::max<int64_t>(1, kElementGrain / config_.columns); }
  double Square(float g) const {
    const double scaled = static_cast<double>(g) * multiplier_;
    return scaled * scaled + AdafactorConfig::kLeastSquare;
  }
  float Renewed(float old, double sum, int64_t of) const {
    return static_cast<float>(decay_ * static_cast<double>(old) +
                              (1.0 - decay_) * (sum / static_cast<double>(of)));
  }

  void RenewRows() {
    ParallelRange(context_, AllRows(), RowGrain(), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* g = g_ + row * config_.columns;
        const float* p = p_ + row * config_.columns;
        double squares = 0;
        double param = 0;
        for (int64_t c = 0; c < config_.columns; ++c) {
          squares += Square(g[c]);
          param += static_cast<double>(p[c]) * static_cast<double>(p[c]);
        }
        rows_[row] = Renewed(old_rows_[row], squares, config_.columns);
        sums_.param[static_cast<size_t>(row)] = param;
      }
    });
  }

  // A few columns of a matrix at a time, so that lines of memory are read whole.
  void RenewColumns() {
    constexpr int64_t kAtOnce = 16;
    const int64_t blocks = (config_.columns + kAtOnce - 1) / kAtOnce;
    const int64_t grain = std::max<int64_t>(1, kElementGrain / (config_.rows * kAtOnce));
    ParallelRange(context_, config_.matrices * blocks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t matrix = block / blocks;
        const int64_t first = block % blocks * kAtOnce;
        const int64_t count = std::min(kAtOnce, config_.columns - first);
        double sums[kAtOnce] = {};
        const float* g = g_ + matrix * config_.rows * config_.columns + first;
        for (int64_t r = 0; r < config_.rows; ++r, g += config_.columns) {
          for (int64_t c = 0; c < count; ++c) sums[c] += Square(g[c]);
        }
        for (int64_t c = 0; c < count; ++c) {
          const int64_t at = matrix * config_.columns + first + c;
          columns_[at] = Renewed(old_columns_[at], sums[c], config_.rows);
        }
      }
    });
  }

  void FindMeans() {
    means_.assign(static_cast<size_t>(config_.matrices), 0);
    for (int64_t row = 0; row < AllRows(); ++row) {
      means_[static_cast<size_t>(row / config_.rows)] += static_cast<double>(rows_[row]);
    }
    for (double& mean : means_) mean /= static_cast<double>(config_.rows);
  }

  // Of an element, but for the rate: g / sqrt(rows / mean * columns).
  float RowFactor(int64_t row) const {
    const double mean = means_[static_cast<size_t>(row / config_.rows)];
    return static_cast<float>(multiplier_ / std::sqrt(static_cast<double>(rows_[row]) / mean));
  }
  const float* ColumnsOf(int64_t row) const {
    return columns_ + row / config_.rows * config_.columns;
  }

  void SumUpdates() {
    ParallelRange(context_, AllRows(), RowGrain(), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float factor = RowFactor(row);
        const float* g = g_ + row * config_.columns;
        const float* columns = ColumnsOf(row);
        double squares = 0;
        for (int64_t c = 0; c < config_.columns; ++c) {
          const auto update = static_cast<double>(g[c] * factor / std::sqrt(columns[c]));
          squares += update * update;
        }
        sums_.update[static_cast<size_t>(row)] = squares;
      }
    });
  }

  void Step(float keep, float share) {
    ParallelRange(context_, AllRows(), RowGrain(), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float factor = RowFactor(row);
        const float* columns = ColumnsOf(row);
        const int64_t first = row * config_.columns;
        for (int64_t c = 0; c < config_.columns; ++c) {
          const float update = g_[first + c] * factor / std::sqrt(columns[c]);
          p_to_[first + c] = keep * p_[first + c] - share * update;
        }
      }
    });
  }

  const AdafactorConfig& config_;
  RowSums& sums_;
  const RunContext& context_;
  const float* p_;
  const float* g_;
  const float* old_rows_;
  const float* old_columns_;
  const double multiplier_;
  const double lr_;
  float* p_to_;
  float* rows_;
  float* columns_;
  const double decay_;
  std::vector<double> means_;
};

}  // namespace

// Gradients of 16 bits are widened with all else (ops/widen.h).
KernelResult MakeAdafactor(const KernelSpec& spec) {
  if (spec.inputs[1].dtype != ir::DType::kF32) return std::unique_ptr<Kernel>();
  const AdafactorConfig config = AdafactorConfig::From(spec.attrs, spec.inputs[0].dims);
  auto sums = std::make_shared<RowSums>();
  sums->param.assign(static_cast<size_t>(config.matrices * config.rows), 0);
  sums->update = sums->param;
  return MakeFunctionKernel(
      [config, sums](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        Adafactor(config, *sums, context, inputs, outputs).Run();
        return {};
      });
}

}  // namespace meshwright::ops::cpu
