// Status: the result of an operation that can fail. The core throws no exceptions; bad input and failing files come
// back as values and become TensorFlow and Python errors at the border (native/tf/, native/capi/).
//
// Messages name the thing, the rule, the value seen and the remedy.
#pragma once

#include <string>
#include <utility>

namespace mxrec {

class [[nodiscard]] Status {
 public:
  // Values cross the C interface: never renumber.
  enum class Code {
    kOk = 0,
    kInvalidArgument = 1,
    kNotFound = 2,
    kAlreadyExists = 3,
    kResourceExhausted = 4,
    kFailedPrecondition = 5,
    kDataLoss = 6,    // a file's content contradicts itself
    kIoError = 7,     // the operating system refused a file operation
    kOutOfRange = 8,  // the data have come to their end
  };

  Status() = default;
  static Status InvalidArgument(std::string m) { return {Code::kInvalidArgument, std::move(m)}; }
  static Status NotFound(std::string m) { return {Code::kNotFound, std::move(m)}; }
  static Status AlreadyExists(std::string m) { return {Code::kAlreadyExists, std::move(m)}; }
  static Status ResourceExhausted(std::string m) { return {Code::kResourceExhausted, std::move(m)}; }
  static Status FailedPrecondition(std::string m) { return {Code::kFailedPrecondition, std::move(m)}; }
  static Status DataLoss(std::string m) { return {Code::kDataLoss, std::move(m)}; }
  static Status IoError(std::string m) { return {Code::kIoError, std::move(m)}; }
  static Status OutOfRange(std::string m) { return {Code::kOutOfRange, std::move(m)}; }
  // Of a code as it crosses an interface; FailedPrecondition if it is none of the errors.
  static Status Of(int code, std::string m) {
    const bool is_error = code > static_cast<int>(Code::kOk) && code <= static_cast<int>(Code::kOutOfRange);
    return {is_error ? static_cast<Code>(code) : Code::kFailedPrecondition, std::move(m)};
  }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  Code code_ = Code::kOk;
  std::string message_;
};

#define MXREC_RETURN_IF_ERROR(expr)                \
  do {                                             \
    ::mxrec::Status mxrec_status_ = (expr);        \
    if (!mxrec_status_.ok()) return mxrec_status_; \
  } while (0)

}  // namespace mxrec
