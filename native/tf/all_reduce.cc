// MxrecAllReduce: the sum, mean, product, largest or smallest of the tensors of all ranks, for any number of tensors of
// one type in one exchange each way. Every rank adds up its share of all elements, in the order of the ranks, so that
// all have the same bits.
#include <algorithm>
#include <cstring>

#include "tf/ranked_kernel.h"

namespace mxrec {
namespace {

REGISTER_OP("MxrecAllReduce")
    .Input("values: N * T")
    .Output("reduced: N * T")
    .Attr("N: int >= 1")
    .Attr("T: {float, double, int32, int64}")
    .Attr("reduction: {'sum', 'mean', 'prod', 'max', 'min'}")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      for (int i = 0; i < c->num_inputs(); ++i) c->set_output(i, c->input(i));
      return absl::OkStatus();
    });

template <typename T>
class AllReduceOp : public RankedKernel {
 public:
  explicit AllReduceOp(OpKernelConstruction* c) : RankedKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("reduction", &reduction_));
  }

 protected:
  const char* first_stage() const override { return "values"; }

  absl::Status Begin(const RunPtr& run) override {
    OpKernelContext* c = run->context;
    const int ranks = run->world->size();
    int64_t total = 0;
    for (int i = 0; i < c->num_inputs(); ++i) total += c->input(i).NumElements();
    Messages messages;
    const uint64_t kind = KindOf(c);
    for (int r = 0; r < ranks; ++r) {
      messages.push_back(MessageOfKind(kind, (End(r, total, ranks) - Begin(r, total, ranks)) * kBytes));
    }
    int64_t at = 0;
    for (int i = 0; i < c->num_inputs(); ++i) {
      const auto values = c->input(i).flat<T>();
      ForParts(at, values.size(), total, ranks, [&](int r, int64_t in_share, int64_t in_tensor, int64_t n) {
        std::memcpy(messages[r].payload() + kKindBytes + in_share * kBytes, values.data() + in_tensor, n * kBytes);
      });
      at += values.size();
    }
    Exchange(run, "values", std::move(messages), "reduced", [this, total](const RunPtr& run, Messages shares) {
      Messages reduced;
      TF_RETURN_IF_ERROR(Reduce(run, total, shares, &reduced));
      Exchange(run, "reduced", std::move(reduced), nullptr,
               [this, total](const RunPtr& run, const Messages& shares) { return Write(run->context, total, shares); });
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kBytes = sizeof(T);

  // A rank's share of all elements.
  static int64_t Begin(int r, int64_t total, int ranks) { return total / ranks * r + total % ranks * r / ranks; }
  static int64_t End(int r, int64_t total, int ranks) { return Begin(r + 1, total, ranks); }

  // Calls fn(rank, first element in its share, first in the tensor, elements) for the shares that a tensor of n
  // elements, which begins at `at` among all, lies in.
  template <typename Fn>
  static void ForParts(int64_t at, int64_t n, int64_t total, int ranks, Fn fn) {
    for (int r = 0; r < ranks; ++r) {
      const int64_t from = std::max(at, Begin(r, total, ranks)), to = std::min(at + n, End(r, total, ranks));
      if (from < to) fn(r, from - Begin(r, total, ranks), from - at, to - from);
    }
  }

  absl::Status Reduce(const RunPtr& run, int64_t total, const Messages& shares, Messages* reduced) const {
    const int ranks = run->world->size(), mine = run->world->rank();
    const int64_t n = End(mine, total, ranks) - Begin(mine, total, ranks);
    const uint64_t kind = KindOf(run->context);
    std::vector<const T*> from;
    for (int r = 0; r < ranks; ++r) {
      if (!IsOfKind(shares[r], kind, n * kBytes)) return OtherKind(run->context, r);
      from.push_back(reinterpret_cast<const T*>(shares[r].payload() + kKindBytes));
    }
    Message result(n * kBytes);
    T* to = reinterpret_cast<T*>(result.payload());
    PoolFor(run->context).Run(n, ranks, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T value = from[0][i];
        for (int r = 1; r < ranks; ++r) value = Join(value, from[r][i]);
        to[i] = reduction_ == "mean" ? value / static_cast<T>(ranks) : value;
      }
    });
    for (int r = 0; r < ranks; ++r) {
      if (r + 1 == ranks) {
        reduced->push_back(std::move(result));
      } else {
        reduced->emplace_back(n * kBytes);
        std::memcpy(reduced->back().payload(), to, n * kBytes);
      }
    }
    return absl::OkStatus();
  }

  T Join(T a, T b) const {
    switch (reduction_[1]) {
      case 'r':  // prod
        return a * b;
      case 'a':  // max
        return std::max(a, b);
      case 'i':  // min
        return std::min(a, b);
      default:
        return a + b;
    }
  }

  absl::Status Write(OpKernelContext* c, int64_t total, const Messages& shares) const {
    const int ranks = static_cast<int>(shares.size());
    int64_t at = 0;
    for (int i = 0; i < c->num_inputs(); ++i) {
      Tensor* out = nullptr;
      TF_RETURN_IF_ERROR(c->allocate_output(i, c->input(i).shape(), &out));
      T* values = out->flat<T>().data();
      ForParts(at, out->NumElements(), total, ranks, [&](int r, int64_t in_share, int64_t in_tensor, int64_t n) {
        std::memcpy(values + in_tensor, shares[r].payload() + in_share * kBytes, n * kBytes);
      });
      at += out->NumElements();
    }
    return absl::OkStatus();
  }

  std::string reduction_;
};

#define REGISTER(T)                                                                                                    \
  REGISTER_KERNEL_BUILDER(Name("MxrecAllReduce").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T").Label("ranks"), \
                          AllReduceOp<T>)
REGISTER(float);
REGISTER(double);
REGISTER(int32_t);
REGISTER(int64_t);
#undef REGISTER

}  // namespace
}  // namespace mxrec
