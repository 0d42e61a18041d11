#include "tf/ranked_kernel.h"

#include <cstring>
#include <new>

#include "base/hash.h"

namespace mxrec {

Status FromTensorFlow(const absl::Status& status) {
  const std::string message(status.message());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return Status::InvalidArgument(message);
    case absl::StatusCode::kNotFound:
      return Status::NotFound(message);
    case absl::StatusCode::kResourceExhausted:
      return Status::ResourceExhausted(message);
    case absl::StatusCode::kDataLoss:
      return Status::DataLoss(message);
    case absl::StatusCode::kOutOfRange:
      return Status::OutOfRange(message);
    default:
      return Status::FailedPrecondition(message);
  }
}

uint64_t KindOf(OpKernelContext* context, bool of_rows) {
  uint64_t kind = Mix64(context->num_inputs());
  for (int i = 0; i < context->num_inputs(); ++i) {
    const Tensor& tensor = context->input(i);
    kind = Mix64(kind + static_cast<uint64_t>(tensor.dtype()) * 256 + tensor.dims());
    for (int d = of_rows ? 1 : 0; d < tensor.dims(); ++d) kind = Mix64(kind + tensor.dim_size(d));
  }
  return kind;
}

absl::Status OtherKind(OpKernelContext* context, int rank) {
  std::string mine;
  for (int i = 0; i < context->num_inputs() && i < 8; ++i) {
    mine += (i == 0 ? "" : ", ") + tensorflow::DataTypeString(context->input_dtype(i)) +
            context->input(i).shape().DebugString();
  }
  if (context->num_inputs() > 8) mine += ", and so on";
  return absl::FailedPreconditionError("'" + context->op_kernel().name() + "': rank " + std::to_string(rank) +
                                       " gives tensors of other types or shapes than rank " +
                                       std::to_string(World::Current()->rank()) + ", which gives " + mine +
                                       ": all ranks must give the same");
}

Message MessageOfKind(uint64_t kind, int64_t bytes) {
  Message message(kKindBytes + bytes);
  std::memcpy(message.payload(), &kind, kKindBytes);
  return message;
}

bool IsOfKind(const Message& message, uint64_t kind, int64_t bytes) {
  return message.payload_bytes() == kKindBytes + bytes && std::memcmp(message.payload(), &kind, kKindBytes) == 0;
}

RankedKernel::RankedKernel(OpKernelConstruction* construction)
    : AsyncOpKernel(construction),
      out_of_memory_(absl::ResourceExhaustedError("out of memory in " + type_string() +
                                                  ": make batches smaller or give the process more memory")) {}

void RankedKernel::ComputeAsync(OpKernelContext* context, DoneCallback done) {
  const auto run = std::make_shared<Run>(Run{context, std::move(done), World::Current()});
  absl::Status status;
  if (run->world == nullptr) {
    status = absl::FailedPreconditionError(
        "this graph was built on one of several ranks, but mx_rec has left them: call init() before the first run");
  } else {
    try {
      status = Begin(run);
    } catch (const std::bad_alloc&) {
      status = out_of_memory_;
    }
  }
  if (!status.ok()) Fail(run, first_stage(), status);
}

void RankedKernel::Fail(const RunPtr& run, const char* stage, const absl::Status& status) {
  if (stage != nullptr && run->world != nullptr) run->world->Fail(StreamOf(stage), FromTensorFlow(status));
  run->context->SetStatus(status);
  run->done();
}

void RankedKernel::Exchange(const RunPtr& run, const char* stage, Messages messages, const char* next_stage,
                            Next next) {
  run->world->Exchange(StreamOf(stage), std::move(messages),
                       [this, run, next_stage, next](const Status& status, Messages got) {
                         if (!status.ok()) {
                           run->context->SetStatus(ToTensorFlow(status));
                           return run->done();
                         }
                         // Not in this thread, which others wait for.
                         auto held = std::make_shared<Messages>(std::move(got));
                         (*run->context->runner())([this, run, next_stage, next, held] {
                           absl::Status continued;
                           try {
                             continued = next(run, std::move(*held));
                           } catch (const std::bad_alloc&) {
                             continued = out_of_memory_;
                           }
                           if (!continued.ok()) return Fail(run, next_stage, continued);
                           if (next_stage == nullptr) run->done();
                         });
                       });
}

}  // namespace mxrec
