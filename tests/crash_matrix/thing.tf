variable "size" {
  type = number
}

resource "terraform_data" "thing" {
  input            = var.size
  triggers_replace = var.size

  provisioner "local-exec" {
    command = "curl -sf -d '{\"wish\": \"create ${self.input}\"}' URL/terraform/effects"
  }

  provisioner "local-exec" {
    when    = destroy
    command = "curl -sf -d '{\"wish\": \"destroy ${self.input}\"}' URL/terraform/effects"
  }
}
