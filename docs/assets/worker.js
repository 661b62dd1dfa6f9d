// Search without a server: browsers start no worker from file://, so its script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = this.inside.document.createElement("script");
      script.src = new URL(address, location.href).href;
      script.onload = () => {
        this.waiting.forEach((data) => this.send(data));
        this.waiting = null;
      };
      this.inside.document.body.append(script);
    }
    send(data) {
      this.inside.dispatchEvent(new MessageEvent("message", { data }));
    }
    postMessage(data) {
      this.waiting ? this.waiting.push(data) : this.send(data);
    }
    terminate() {}
  };
}
